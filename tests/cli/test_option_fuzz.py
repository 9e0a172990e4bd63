"""npubench under strange values: the quick part of benchmarks/option_fuzz.py."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_npubench.cli.main import main

from .option_fuzz import VALUES, Command, Tally, commands, confined, fill, tried

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
SHARE = 120  # every so many-th call of a command is made here


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("fuzz") / "a" / "b"
    folder.mkdir(parents=True)
    with confined(folder):
        fill(folder)
        yield folder
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # what was about to be a child's when none was started
        gc.collect()


def test_every_command_is_there() -> None:
    words = {command.words for command in commands()}
    assert {("simulate",), ("history", "list"), ("nightly", "run"), ("partition", "plan")} <= words
    assert all(command.actions for command in commands())


def test_no_option_ends_in_a_traceback_whatever_its_value(folder: Path) -> None:
    """Every option gets its share of the values, another one each."""
    tally, number = Tally(), 0
    for command in commands():
        for action in command.actions:
            for value in VALUES:
                number += 1
                if number % SHARE == 0:
                    tried(command.line(action, value), tally)
    assert tally.findings == [], tally
    assert tally.tried > 200
    assert min(tally.done, tally.named) > 0, tally


BIG = "1" + "0" * 20


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            ("simulate", "--num-requests", BIG),
            "--num-requests: '100000000000000000000': want a whole number from 1 to 1000000",
        ),
        (("simulate", "--slo-ttft", "9" * 400 + "s"), "want a time above 0 with its unit"),
        (("simulate", "--seed", "9" * 5000), "...': want a whole number from 0 to 4294967295"),
        (("history", "list", "--limit", BIG), "want a whole number from 1 to 1000000"),
        (("history", "list", "--since", "9999-12-31T23:59:59-14:00"), "want a date such as 2026-11-21"),
        (("history", "list", "--since", "0001-01-01T00:00:00+14:00"), "want a date such as 2026-11-21"),
        (("baseline", "prune", "--older-than", "2147483648"), "want a whole number from 1 to 36500"),
        (("partition", "plan", "--length", BIG), "want a whole number from 1 to 16384"),
        (("probe", "--timeout", "1e18"), "want seconds above 0, up to 31536000"),
        (("load", "--extra-body", "[" * 5000), "no JSON: maximum recursion depth exceeded"),
        (("baseline", "list", "--baselines=--"), "argument --baselines: expected one argument"),
        (("history", "list", "--histroy", "postgresql://ann:s3cret@h/d"), "postgresql://ann:***@h/d"),
    ],
)
def test_what_is_allowed_is_said(
    folder: Path, capsys: pytest.CaptureFixture[str], line: tuple[str, ...], words: str
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(line)
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert words in " ".join(said.split())
    assert "s3cret" not in said


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (("show", "--html", "n" * 300, "-o", "x.html"), "File name too long"),
        (("show", "--html", "journal.jsonl", "-o", "n" * 300), "File name too long"),
        (("workloads", "n" * 300 + ".csv"), "no workload is named"),
        (("hardware", "--check", "n" * 300 + ".toml"), "File name too long"),
        (("history", "list", "--history", "n" * 300 + ".db"), "ile"),
        (("baseline", "list", "--baselines", "n" * 300), ""),
        (("history", "show", "\udcff", "--history", "history.db"), "a number or a sign that it cannot hold"),
    ],
)
def test_a_name_that_is_too_long_or_no_text_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str], line: tuple[str, ...], words: str
) -> None:
    assert main(line) == 1
    said = capsys.readouterr().err
    assert said.startswith("npubench: error: ")
    assert words in said


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_stream_that_lacks_a_sign_stops_nothing(folder: Path, encoding: str) -> None:
    tally = Tally()
    wanted = [command for command in commands() if command.words in (("hardware",), ("history", "list"), ("predict",))]
    for command in wanted:
        tried(command.line(_last(command), "\udcff🦆\u202e"), tally, encoding=encoding)
        tried([*command.words, "--help"], tally, encoding=encoding)
    assert tally.findings == []


def _last(command: Command):  # type: ignore[no-untyped-def]
    return command.actions[-1]
