"""What `make test` leaves out, in a small repository of git whose tests load slow_tests.py."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import slow_tests

FILES = {
    ".gitignore": "__pycache__/\n",
    "pyproject.toml": "[tool.pytest.ini_options]\n",
    "docs/alpha.md": "",
    "hardware/cpu.toml": "",
    "pytest_npubench/core/shared.py": "",
    "pytest_npubench/core/private.py": "",
    "pytest_npubench/extensions/alpha/__init__.py": "from pytest_npubench.core.shared import *\n",
    "pytest_npubench/extensions/beta/__init__.py": "",
    "tests/conftest.py": "import hypothesis\n\nhypothesis.settings.register_profile('soak')\n"
    "pytest_plugins = ['slow_tests']\n",
    "tests/stand/in_core.py": "",
    "tests/test_core.py": "def test_slow(): pass\n",
    "tests/extensions/alpha/test_alpha.py": "def test_slow(): pass\n",
    "tests/extensions/beta/test_beta.py": "import pytest\nfrom tests.stand import in_core\n\n"
    "@pytest.mark.parametrize('number', [1, 2])\ndef test_slow(number): pass\n\ndef test_quick(): pass\n",
    "tests/durations.json": '{"tests/test_core.py::test_slow": 5, "tests/extensions/alpha/test_alpha.py::test_slow": 2,'
    '"tests/extensions/beta/test_beta.py::test_slow": 3}',
}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    shutil.copy(slow_tests.__file__, tmp_path / "tests")
    git(tmp_path, "init", "--quiet", "--initial-branch=main")
    commit(tmp_path)
    git(tmp_path, "tag", "v1.0")
    return tmp_path


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=A", "-c", "user.email=a@b.invalid", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True)


def commit(folder: Path) -> None:
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "a change")


def change(folder: Path, name: str) -> None:
    with (folder / name).open("a", encoding="utf-8") as file:
        file.write("# more\n")


def change_and_commit(folder: Path, name: str) -> None:
    change(folder, name)
    commit(folder)


@pytest.mark.parametrize(
    ("name", "unchanged"),
    [
        ("docs/alpha.md", ["alpha", "beta"]),
        ("pytest_npubench/core/private.py", ["alpha", "beta"]),
        ("tests/test_core.py", ["alpha", "beta"]),
        ("pytest_npubench/core/shared.py", ["beta"]),
        ("pytest_npubench/core/__init__.py", ["beta"]),
        ("pytest_npubench/extensions/alpha/added.py", ["beta"]),
        ("tests/extensions/beta/test_beta.py", ["alpha"]),
        ("tests/stand/in_core.py", ["alpha"]),
        ("tests/conftest.py", []),
        ("hardware/added.toml", []),
        ("pyproject.toml", []),
    ],
)
def test_an_extension_rests_on_its_folders_and_on_what_they_import(
    name: str, unchanged: list[str], repository: Path
) -> None:
    change(repository, name)
    changed = slow_tests.changed_paths(repository)
    assert changed == {name}
    assert slow_tests.unchanged_extensions(repository, changed) == unchanged


def test_what_is_committed_moved_or_deleted_has_changed(repository: Path) -> None:
    change_and_commit(repository, "docs/alpha.md")
    git(repository, "mv", "pytest_npubench/core/shared.py", "docs/shared.py")
    git(repository, "rm", "--quiet", "tests/stand/in_core.py")
    changed = slow_tests.changed_paths(repository)
    assert changed == {"docs/alpha.md", "pytest_npubench/core/shared.py", "docs/shared.py", "tests/stand/in_core.py"}
    assert slow_tests.unchanged_extensions(repository, changed) == []


def test_changes_are_from_where_the_branch_left_main_or_else_from_the_release(repository: Path, tmp_path: Path) -> None:
    change_and_commit(repository, "docs/alpha.md")
    assert slow_tests.changed_paths(repository) == {"docs/alpha.md"}
    assert slow_tests.changed_paths(repository, "HEAD") == set()

    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", str(repository), str(clone))
    git(clone, "switch", "--quiet", "--create", "branch")
    change_and_commit(clone, "hardware/cpu.toml")
    change_and_commit(repository, "pyproject.toml")
    git(clone, "fetch", "--quiet")
    assert slow_tests.changed_paths(clone) == {"hardware/cpu.toml"}
    assert slow_tests.changed_paths(clone, "v1.0") == {"docs/alpha.md", "hardware/cpu.toml"}


@pytest.mark.parametrize(
    "why", ["no tag", "no repository", "another repository", "no such commit", "shallow", "no git"]
)
def test_where_git_cannot_tell_nothing_is_left_out(
    why: str, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, since = repository, None
    if why == "no tag":
        git(repository, "tag", "--delete", "v1.0")
    elif why == "no repository":
        shutil.rmtree(repository / ".git")
    elif why == "another repository":
        root = repository / "tests"
    elif why == "no such commit":
        since = "v0.9"
    elif why == "shallow":
        change_and_commit(repository, "docs/alpha.md")
        root = tmp_path / "clone"
        git(tmp_path, "clone", "--quiet", "--depth=1", repository.as_uri(), str(root))
    else:
        monkeypatch.setenv("PATH", "")
    assert slow_tests.changed_paths(root, since) is None


@pytest.mark.parametrize(
    ("arguments", "num_passed", "left_out"),
    [
        ("tests", 2, "3 slow tests"),
        ("tests -n 2", 2, "3 slow tests"),
        ("tests -k beta", 1, "2 slow tests"),
        ("tests/extensions/alpha tests/test_core.py", 2, None),
        ("tests/extensions/alpha/test_alpha.py::test_slow tests/extensions", 2, "2 slow tests"),
        ("tests --hypothesis-profile=soak", 5, None),
    ],
)
def test_a_run_says_what_it_leaves_out(arguments: str, num_passed: int, left_out: str | None, repository: Path) -> None:
    command = [sys.executable, "-m", "pytest", *arguments.split()]
    environment = {**os.environ, "PYTEST_ADDOPTS": ""}
    for name in (slow_tests.MEASURE, slow_tests.SINCE):
        environment.pop(name, None)
    run = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True, check=True)
    assert f"{num_passed} passed" in run.stdout
    for line in ("left out: slow tests of extensions that did not change", f"left out: {left_out} of extensions"):
        assert (line in run.stdout) is (left_out is not None)
