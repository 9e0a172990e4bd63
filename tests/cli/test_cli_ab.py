"""npubench ab: order, retries, what is kept, and environments that cannot be used.

The environments are stand-ins: scripts that answer as a python does, and that leave a journal written by the real
JournalWriter in place of measuring. No pytest runs in them.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparison.made_nights import night, stack, write_session

from pytest_npubench.comparison.ab_run import schedule

from .conftest import Answer

Run = Callable[..., Answer]
MOST_PROCESSES = 24
"""That the stand-ins of one test have journals for."""

STAND_IN = """\
#!{python}
import json, sys, time
from pathlib import Path
control = json.loads(Path({control!r}).read_text())
side = {side!r}
if sys.argv[1] == "-c":
    if control["broken"].get(side):
        sys.exit(control["broken"][side])
    versions = {{"pytest-npubench": "0.1.0", "jax": "0.10.2", "jaxlib": control["jaxlib"][side]}}
    plugin = None if side in control["lacking"] else "0.1.0"
    print(json.dumps({{"python": "3.11.9", "plugin": plugin, "versions": versions}}))
    sys.exit(0)
assert sys.argv[1:5] == ["-m", "pytest", "-p", "no:cacheprovider"], sys.argv
assert sys.argv[5] == "--npubench-journal"
journal = Path(sys.argv[6])
log = Path(control["log"])
with log.open("a") as file:
    file.write(json.dumps([side, journal.stem, sys.argv[7:]]) + "\\n")
number = len(log.read_text().splitlines())
status = control["statuses"].get(f"{{journal.stem}}/{{number}}", control["statuses"].get(journal.stem, 0))
print(f"stand-in {{side}} ends with {{status}}")
time.sleep(control["sleep_s"])
if status in (0, 1) and not control["silent"]:
    with journal.open("ab") as file:
        file.write((log.parent / "journals" / side / str(number)).read_bytes())
elif status not in (0, 1):
    journal.write_text("what a failed process left")
sys.exit(status)
"""


@cache
def journal_of(number: int, jaxlib: str, planted: tuple[tuple[str, float], ...], digest: str) -> bytes:
    """What the number-th process leaves."""
    metrics = night(np.random.default_rng(number), planted=dict(planted))
    libraries = (("jax", "0.10.2"), ("jaxlib", jaxlib))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.jsonl"
        write_session(path, metrics, stack(libraries=libraries), digest=digest)
        return path.read_bytes()


@dataclass
class Stage:
    """Two stand-ins and what they are to do; `log` says what they were asked."""

    folder: Path
    planted: dict[str, dict[str, float]] = field(default_factory=dict)
    statuses: dict[str, int] = field(default_factory=dict)
    lacking: list[str] = field(default_factory=list)
    broken: dict[str, str] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    silent: bool = False
    sleep_s: float = 0.0
    jaxlib: dict[str, str] = field(default_factory=lambda: {"A": "0.9.2", "B": "0.10.2"})

    def arguments(self, *more: object) -> list[object]:
        """Of npubench, up to --; the stand-in of A is named by its folder, that of B by its path."""
        for side, path in (("A", self.folder / "env-a" / "bin" / "python"), ("B", self.folder / "python-b")):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(
                STAND_IN.format(python=sys.executable, control=str(self.folder / "control.json"), side=side)
            )
            path.chmod(0o755)
            planted, digest = self.planted.get(side, {}), self.digests.get(side, "5d41402abc4b")
            journals = self.folder / "journals" / side
            journals.mkdir(parents=True, exist_ok=True)
            for number in range(1, MOST_PROCESSES + 1):
                text = journal_of(number, self.jaxlib[side], tuple(planted.items()), digest)
                (journals / str(number)).write_bytes(text)
        control: dict[str, Any] = {**vars(self), "folder": "", "log": str(self.folder / "log.jsonl")}
        (self.folder / "control.json").write_text(json.dumps(control))
        return ["ab", "--env-a", self.folder / "env-a", "--env-b", self.folder / "python-b", *more]

    @property
    def asked(self) -> list[tuple[str, str, list[str]]]:
        path = self.folder / "log.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [tuple(json.loads(line)) for line in lines]

    @property
    def order(self) -> str:
        return "".join(side for side, _, _ in self.asked)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(folder=tmp_path)


def test_each_pair_begins_where_the_last_one_ended() -> None:
    assert "".join(process.side for process in schedule(5)) == "ABBAABBAAB"
    assert [process.pair for process in schedule(2)] == [1, 1, 2, 2]


def test_a_planted_slow_down_in_b(call: Run, stage: Stage) -> None:
    slow = "buckets/profile/h200-tiny-b4-bucket4"
    stage.planted = {"B": {slow: 1.1}}
    answer = call(*stage.arguments("--pairs", 4, "--", "-m", "cpu", "suites/"))
    assert answer.status == 1, answer.err
    assert stage.order == "ABBAABBA"
    assert all(arguments == ["-m", "cpu", "suites/"] for _, _, arguments in stage.asked)
    assert "jaxlib 0.9.2 -> 0.10.2" in answer.out
    assert "jaxlib 0.9.2 -> 0.10.2" in answer.err
    assert "[8/8] A, pair 4: exit status 0 after" in answer.err
    assert "left" in answer.err
    assert "regressed (1)" in answer.out
    assert slow in answer.out
    assert "(4 sessions)" in answer.out
    found = json.loads(call(*stage.arguments("--pairs", 4, "--json", "--", "suites/")).out)
    (row,) = [row for row in found["cases"] if row["verdict"] == "regressed"]
    assert row["ratio"] == pytest.approx(1.1, abs=0.015)
    assert "over 4 pairs" in row["reason"]
    assert found["canary"]["verdict"] != "regressed"
    assert len(found["canaries"]) == 3


def test_an_a_a_run_alarms_nobody(call: Run, stage: Stage) -> None:
    stage.jaxlib = {"A": "0.10.2", "B": "0.10.2"}
    answer = call(*stage.arguments("--pairs", 5, "--", "suites/"))
    assert answer.status == 0, answer.out
    assert "nothing differs: this is an A/A run" in answer.err
    assert "regressed (" not in answer.out


def test_a_failed_process_runs_once_more(call: Run, stage: Stage, tmp_path: Path) -> None:
    """The second process, B of pair 1, crashes at first; one with failed tests (exit status 1) counts."""
    stage.statuses = {"pair-1-B/2": -11, "pair-3-A": 1}
    answer = call(*stage.arguments("--pairs", 3, "--keep", tmp_path / "kept", "--", "suites/"))
    assert stage.order == "ABBBAAB"
    assert (
        "B, pair 1: exit status 245, once more" in answer.err
        or "killed by signal 11 (SIGSEGV), once more" in answer.err
    )
    assert "dropped" not in answer.err
    assert "(3 sessions)" in answer.out
    assert (tmp_path / "kept" / "pair-1-B.failed.jsonl").read_text() == "what a failed process left"


def test_a_pair_that_fails_twice_is_dropped_and_said(call: Run, stage: Stage) -> None:
    stage.statuses = {"pair-2-B": 3}
    answer = call(*stage.arguments("--pairs", 4, "--", "suites/"))
    assert stage.order == "ABBBABBA"  # pair 2 begins with B, and its A is not run
    said = "pair 2 is dropped: B, pair 2: exit status 3"
    assert said in answer.err
    assert said in answer.out
    assert "(2 attempts)" in answer.out
    assert "(3 sessions)" in answer.out


@pytest.mark.parametrize(
    ("digests", "pairs", "messages"),
    [
        ({}, 2, ["2 pairs; want 3 or more"]),
        ({"B": "ffffffffffff"}, 3, ["incomparable (12)", "case digest 5d41402abc4b -> ffffffffffff"]),
    ],
    ids=["below three pairs", "measured otherwise"],
)
def test_what_cannot_be_compared_is_not_decided(
    call: Run, stage: Stage, digests: dict[str, str], pairs: int, messages: list[str]
) -> None:
    stage.digests = digests
    answer = call(*stage.arguments("--pairs", pairs, "--", "suites/"))
    assert answer.status == 3
    assert [message for message in messages if message not in " ".join(answer.out.split())] == []


@pytest.mark.parametrize(
    ("status", "silent", "message"),
    [
        (4, False, "cannot use these arguments: stand-in A ends with 4"),
        (5, False, "finds no test: "),
        (0, True, "measures no case: stand-in A ends with 0"),
    ],
)
def test_what_would_fail_again_ends_at_once(call: Run, stage: Stage, status: int, silent: bool, message: str) -> None:
    stage.statuses, stage.silent = {"pair-1-A": status}, silent
    answer = call(*stage.arguments("--pairs", 3, "--", "suites/"))
    assert (answer.status, stage.order) == (1, "A")
    assert message in answer.err


def test_finished_processes_are_not_run_again(call: Run, stage: Stage, tmp_path: Path) -> None:
    kept = ["--keep", tmp_path / "kept"]
    first = call(*stage.arguments("--pairs", 3, *kept, "--", "suites/"))
    again = call(*stage.arguments("--pairs", 3, *kept, "--", "suites/"))
    assert stage.order == "ABBAAB"
    assert again.out == first.out
    assert "[6/6] B, pair 3: finished before" in again.err
    assert "(4 sessions)" in call(*stage.arguments("--pairs", 4, *kept, "--", "suites/")).out
    assert stage.order == "ABBAABBA"
    other = call(*stage.arguments("--pairs", 3, *kept, "--", "suites/", "-k", "x"))
    assert other.status == 1
    assert "holds a run of other pytest arguments" in other.err.splitlines()[-1]


def test_a_folder_of_something_else_is_left_alone(call: Run, stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    arguments = stage.arguments("--keep", tmp_path / "mine", "--", "suites/")
    assert "holds other files; want an empty folder" in call(*arguments).err
    (tmp_path / "mine" / "ab.json").write_text("{")
    assert "ab.json: cannot be read" in call(*arguments).err
    assert stage.order == ""


def test_interrupted_it_keeps_the_journals_and_goes_on(call: Run, stage: Stage, tmp_path: Path) -> None:
    stage.sleep_s = 0.8
    behind = ("suites/", "--npubench-history", "postgresql://ann:s3cret@localhost/bench")
    arguments = stage.arguments("--pairs", 3, "--keep", tmp_path / "kept", "--", *behind)
    command = [sys.executable, "-c", "from pytest_npubench.cli.main import main; import sys; sys.exit(main())"]
    running = subprocess.Popen(
        [*command, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while len(stage.asked) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 130, err
    assert f"go on with --keep {tmp_path / 'kept'}" in err
    kept = (tmp_path / "kept" / "ab.json").read_text()
    assert json.loads(kept)["finished"].keys() == {"pair-1-A"}
    assert "s3cret" not in kept
    stage.sleep_s = 0.0
    answer = call(*stage.arguments("--pairs", 3, "--keep", tmp_path / "kept", "--", *behind))
    assert "A, pair 1: finished before" in answer.err
    assert stage.order == "ABBBAAB"
    assert "(3 sessions)" in answer.out


def test_an_environment_without_the_plugin(call: Run, stage: Stage) -> None:
    stage.lacking = ["B"]
    error = call(*stage.arguments("--", "suites/")).error
    assert "--env-b" in error
    assert "pytest-npubench is not installed there" in error
    assert stage.order == ""


def test_environments_that_are_none(call: Run, stage: Stage, tmp_path: Path) -> None:
    good = stage.arguments()[2]
    (tmp_path / "folder").mkdir()
    text = tmp_path / "text"
    text.write_text("no program")
    echo = tmp_path / "echo"
    echo.write_text("#!/bin/sh\necho hello\n")
    echo.chmod(0o755)
    for named, message in (
        (tmp_path / "none", "not found; want a python or a virtual environment's folder"),
        (tmp_path / "folder", "a folder without bin/python"),
        (text, "is not executable"),
        (echo, "is no Python interpreter: it answered 'hello"),
    ):
        error = call("ab", "--env-a", good, "--env-b", named, "--", "suites/").error
        assert error.startswith(f"npubench: error: --env-b {named}: {message}")
    stage.broken = {"A": "ImportError: no numpy"}
    assert "ImportError: no numpy" in call(*stage.arguments("--", "suites/")).error
    assert stage.order == ""


def test_the_real_environment_of_these_tests_has_the_plugin() -> None:
    from pytest_npubench.comparison.environments import environment_differences, find_environment

    found = find_environment("--env-a", sys.executable)
    assert found.versions["numpy"]
    assert found.facts["pytest-npubench"] == found.plugin_version
    assert environment_differences(found, found) == ()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--", "suites/"], "want both of --env-a and --env-b, or --commits"),
        (["--env-a", "x", "--commits", "a..b", "--", "s"], "want both of --env-a and --env-b, or --commits"),
        (["--env-a", "x", "--env-b", "y"], "required: PYTEST_ARGUMENT"),
        (["--env-a", "x", "--env-b", "y", "--pairs", "0", "--", "s"], "'0': want a whole number"),
        (["--env-a", "x", "--env-b", "y", "--cooldown", "-1", "--", "s"], "'-1': want seconds, 0 to 31536000"),
    ],
)
def test_usage_errors(call: Run, arguments: list[str], message: str) -> None:
    answer = call("ab", *arguments)
    assert answer.status == 2
    assert message in answer.err
