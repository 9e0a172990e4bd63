"""pytest in the checkout after `make bench`, which installs nothing that only the tests need."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

WITHOUT_THE_TEST_EXTRA = """
import importlib.machinery
import importlib.metadata
import sys

missing = ("hypothesis", "statsmodels")
find, version = importlib.machinery.PathFinder.find_spec, importlib.metadata.version


def found(cls, name, *arguments):
    return None if name in missing else find(name, *arguments)


def known(name):
    if name in missing:
        raise importlib.metadata.PackageNotFoundError(name)
    return version(name)


importlib.machinery.PathFinder.find_spec = classmethod(found)
importlib.metadata.version = known
import pytest

sys.exit(pytest.main(["-p", "no:hypothesispytest", *sys.argv[1:]]))
"""


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("--help",), 0, "--npubench-require"),
        (("--markers",), 0, "@pytest.mark.cpu:"),
        (("tests/test_words.py", "-p", "no:xdist"), 0, "2 passed"),
        (
            (),
            4,
            "ERROR: the project's own tests need packages that are not installed: hypothesis, statsmodels; `make test`",
        ),
    ],
)
def test_pytest_in_the_checkout_without_the_test_extra(arguments: tuple[str, ...], status: int, said: str) -> None:
    command = [sys.executable, "-c", WITHOUT_THE_TEST_EXTRA, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    assert said in done.stdout + done.stderr
    assert "Traceback (most" not in done.stdout + done.stderr
    assert "ModuleNotFoundError" not in done.stdout + done.stderr


@pytest.mark.parametrize("script", [".ci/run", "Makefile"])
def test_what_a_script_tests_is_there(script: str) -> None:
    """pytest runs nothing at all where one path of several is not."""
    text = (ROOT / script).read_text(encoding="utf-8")
    paths = {path for path in re.findall(r"(?:tests|suites)/[\w/.]*\w", text) if "*" not in path}
    assert len(paths) > 3
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []
