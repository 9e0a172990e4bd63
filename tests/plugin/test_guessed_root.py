"""Root and ini of a run stay where they are, however the values of our options are written and whatever lies there."""

import shlex
import subprocess
import sys

import pytest

from pytest_npubench.plugin.guessed_root import joined


@pytest.fixture
def checkout(tmp_path):
    """A checkout with an ini file of its own, and a folder outside of it that has one too."""
    for folder in ("checkout/part", "nights/hw"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "checkout/pytest.ini").write_text("[pytest]\nnpubench_margin = 0.02\n")
    (tmp_path / "nights/pytest.ini").write_text("[pytest]\n")
    (tmp_path / "nights/journal.jsonl").touch()
    (tmp_path / "checkout/part/test_it.py").write_text(
        "def test_it(pytestconfig):\n    assert pytestconfig.getini('npubench_margin') == '0.02'\n"
    )
    return tmp_path / "checkout"


@pytest.mark.parametrize(
    ("value", "tests", "is_in_environment"),
    [
        ("--npubench-journal ../nights/journal.jsonl", (), False),
        ("--npubench-hardware ../nights/hw", ("part",), False),
        ("--npubench-journal ../nights/journal.jsonl", ("part",), True),
    ],
)
def test_a_value_after_a_blank_moves_nothing(checkout, monkeypatch, value, tests, is_in_environment):
    given = shlex.split(value)
    monkeypatch.setenv("PYTEST_ADDOPTS", f"-p no:cacheprovider {value if is_in_environment else ''}")
    command = [sys.executable, "-m", "pytest", *(() if is_in_environment else given), *tests]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("test session starts") == 1
    assert {f"rootdir: {checkout}", "configfile: pytest.ini"} < set(done.stdout.splitlines())
    assert "part/test_it.py" in done.stdout


def test_a_run_whose_root_another_plugins_option_moved_is_refused(checkout):
    (checkout / "part/test_own.py").write_text(
        "import pytest\n\n@pytest.mark.cpu\ndef test_sum(npubench):\n    npubench(sum, [1, 2])\n"
    )
    (checkout.parent / "out").mkdir()
    command = [sys.executable, "-m", "pytest", "-m", "cpu", "--benchmark-storage", "../out"]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"its root is {checkout.parent} (ini file None) in place of {checkout} (ini file " in done.stderr


def test_what_is_no_option_of_ours_stays_as_it_is():
    words = [
        "--npubench-journal",
        "a b",
        "-k",
        "x",
        "--npubench-margin=1",
        "--npubench-resume",
        "tests",
        "--journal",
        "c",
    ]
    assert list(joined(words)) == ["--npubench-journal=a b", *words[2:]]
    assert list(joined(["--", "--npubench-journal", "a"])) == ["--", "--npubench-journal", "a"]
    assert list(joined(["--npubench-journal"])) == ["--npubench-journal"]
