"""npubench run: which suites it finds from where, what it hands to pytest, and its errors."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_npubench.cli import nightly, run
from pytest_npubench.plugin.options import FLAGS, OPTIONS

from .conftest import Answer

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture
def command(call: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """The arguments that pytest is started with by `npubench run ARGUMENT ...`."""
    started: list[list[str]] = []
    monkeypatch.setattr(run, "replace_process", lambda command: started.append(command) or 0)

    def command(*arguments: str) -> list[str]:
        answer = call("run", *arguments)
        assert (answer.status, answer.err) == (0, "")
        program, option, module, *rest = started.pop()
        assert (program, option, module) == (sys.executable, "-m", "pytest")
        return rest

    return command


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Suites as a wheel ships them, and an empty folder to stand in."""
    for name in (".", "buckets", "scheduling", "data"):
        (tmp_path / "site" / "npubench_suites" / name).mkdir(parents=True, exist_ok=True)
        if name != "data":
            (tmp_path / "site" / "npubench_suites" / name / "__init__.py").touch()
    (tmp_path / "empty").mkdir()
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.chdir(tmp_path / "empty")


@pytest.mark.parametrize(
    ("folder", "arguments", "expected"),
    [
        (".", (), ["suites"]),
        (".", ("-m", "tpu", "--npubench-profile", "nightly"), ["suites", "-m", "tpu", "--npubench-profile", "nightly"]),
        (".", ("buckets", "scheduling", "-m", "cpu"), ["suites/buckets", "suites/scheduling", "-m", "cpu"]),
        ("docs", ("offload", "-q"), ["../suites/offload", "-q"]),
        # whatever stands behind the first option is pytest's
        (".", ("-k", "buckets", "--help", "--", "-x", ""), ["suites", "-k", "buckets", "--help", "--", "-x", ""]),
        (".", ("--version",), ["suites", "--version"]),
    ],
)
def test_in_a_checkout_its_own_suites_run(
    folder: str, arguments: tuple[str, ...], expected: list[str], command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(CHECKOUT / folder)
    assert command(*arguments) == [f"--rootdir={'.' if folder == '.' else '..'}", *expected]


@pytest.mark.usefixtures("shipped")
def test_elsewhere_the_shipped_ones_do(command) -> None:
    assert command() == ["--pyargs", "npubench_suites"]
    assert command("-m", "tpu") == ["--pyargs", "npubench_suites", "-m", "tpu"]
    names = ["--pyargs", "npubench_suites.buckets", "npubench_suites.scheduling"]
    assert command("buckets", "scheduling", "-x") == [*names, "-x"]


@pytest.mark.usefixtures("shipped")
def test_a_folder_suites_of_somebody_else_is_not_ours(command) -> None:
    Path("suites").mkdir()
    Path("suites/__init__.py").touch()
    assert command() == ["--pyargs", "npubench_suites"]


@pytest.mark.usefixtures("shipped")
def test_a_night_runs_the_folder_suites_or_else_the_shipped_ones() -> None:
    assert nightly._default_tests(Path.cwd()) == ["--pyargs", "npubench_suites"]
    Path("suites").mkdir()
    assert nightly._default_tests(Path.cwd()) == ["suites/"]


@pytest.mark.usefixtures("shipped")
def test_a_suite_that_does_not_exist_is_an_error_with_those_that_do(call: Callable[..., Answer]) -> None:
    error = call("run", "bucket", "-m", "cpu").error
    assert "no suite 'bucket'; did you mean 'buckets'? (known: buckets, scheduling; " in error
    assert "no suite 'data' (known: buckets, scheduling; " in call("run", "data").error


def test_without_any_suites_the_error_says_what_to_do(
    call: Callable[..., Answer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "npubench_suites", None)
    assert f"{tmp_path} is in no checkout, and npubench_suites is not installed" in call("run").error


def test_the_checkout_has_these_suites() -> None:
    found = run.find_suites(CHECKOUT)
    assert found.names == ("buckets", "compiled", "graphs", "offload", "partition", "scheduling", "server")
    assert {path.parent.name for path in (CHECKOUT / "suites").glob("*/test_*.py")} == set(found.names)


def test_its_help_has_every_option_once_and_the_ten_that_matter_first(call: Callable[..., Answer]) -> None:
    answer = call("run", "--help")
    assert (answer.status, answer.err) == (0, "")
    groups = [re.findall(r"^  --npubench-([\w-]+)", group, re.M) for group in answer.out.split("\nnpubench: ")[1:]]
    assert len(groups[0]) == 10
    assert {"profile", "require", "accept", "report"} <= set(groups[0])
    options = [option.flag.removeprefix("--npubench-") for option in OPTIONS] + [name for name, _ in FLAGS]
    assert sorted(name for group in groups for name in group) == sorted(options)
    assert min(map(len, groups)) > 1
