"""`npubench selfcheck`: faults planted on your own device, and whether this installation's gate finds them.

Real sessions in a temporary folder: some of a small callable are measured and accepted, then one for each fault
and one without any. A fault is found where its case has the verdict that it should have, or its test fails, and
where it does not enter the baselines; without a fault everything has to be passed and accepted.

Exit status: 0 all found, 1 a fault was missed, a false alarm, or the device is absent.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest_npubench
from pytest_npubench.cli.arguments import Commands, add_command, columns, say, whole_number
from pytest_npubench.core.clock import monotonic
from pytest_npubench.errors import DeviceUnavailableError, MeasurementError
from pytest_npubench.plain_text import plain_lines
from pytest_npubench.processes import guarded

EXAMPLE = "npubench selfcheck -m tpu"
TESTS = Path(pytest_npubench.__file__).parent / "plugin" / "selfcheck_tests.py"
NUM_SESSIONS, MIN_SESSIONS = 5, 3
LIMIT_S = 3600.0
LOCK = "--npubench-lock-timeout=600"  # whoever else measures on the device ends some day
TEST = "test_selfcheck.py"
PLANTED = "NPUBENCH_PLANTED"
FOUND, PASSED = "found", "passed"
NUM_LAST_LINES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """A fault. `name` is its name in selfcheck_tests.py; it is planted in the first of `tests`. `verdict` is what the
    case should have, None where the test itself fails."""

    name: str
    title: str
    verdict: str | None
    tests: tuple[str, ...] = ("test_work",)


FAULTS = (
    Planted(name="slower", title="a quarter more work in every call", verdict="regressed"),
    Planted(name="tail", title="five times the work in one call of eight", verdict="regressed"),
    Planted(name="half", title="half of the work left out", verdict="improved"),
    Planted(name="clock", title="half more work, and clocks that stand still", verdict="regressed"),
    Planted(
        name="answer",
        title="a wrong answer, beside another red case",
        verdict=None,
        tests=("test_answer", "test_limit"),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One that was measured: its case records by key, and the cases that were accepted."""

    records: Mapping[str, Mapping[str, Any]]
    accepted: frozenset[str]

    def of(self, test: str) -> dict[str, Mapping[str, Any]]:
        """The records of a test, one for each device."""
        return {case: record for case, record in self.records.items() if f"::{test}" in case}


def add_parser(commands: Commands, about: str) -> None:
    parser = add_command(commands, "selfcheck", about, EXAMPLE)
    parser.add_argument(
        "-m", dest="marker", metavar="EXPRESSION", required=True, help="the devices, as pytest's -m: cpu, cuda, tpu"
    )
    parser.add_argument(
        "--sessions",
        metavar="N",
        type=whole_number(50),
        default=NUM_SESSIONS,
        help=f"accept so many first (default {NUM_SESSIONS}, at least {MIN_SESSIONS}): more show smaller changes",
    )
    parser.add_argument("arguments", metavar="ARGUMENT", nargs="*", help="after --: further options of pytest")
    parser.set_defaults(run=lambda arguments: run(parser, arguments))


def run(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    """Runs all sessions. Raises MeasurementError where one is not accepted although the device is there."""
    if arguments.sessions < MIN_SESSIONS:
        parser.error(f"--sessions {arguments.sessions}: want at least {MIN_SESSIONS}")
    with tempfile.TemporaryDirectory(prefix="npubench-selfcheck-") as name:
        stage = _Stage(Path(name), arguments.marker, arguments.arguments)
        started_s = monotonic()
        try:
            for index in range(arguments.sessions):
                if index == 1:
                    num_more = arguments.sessions + len(FAULTS)
                    _say(f"the first took {monotonic() - started_s:.0f} s; {num_more} more follow")
                _say(f"session {index + 1} of {arguments.sessions}")
                _check_accepted(stage.let_in(stage.measure()), index + 1)
        except DeviceUnavailableError as error:
            say(f"unavailable: {error}")
            return 1
        rows = [_unplanted(stage), *(_planted(stage, fault) for fault in FAULTS)]
    print(columns([("planted", "", "verdict"), *rows]))
    return int(any(row[1] not in (PASSED, FOUND) for row in rows))


def _check_accepted(session: Session, number: int) -> None:
    """Raises MeasurementError where a session was not accepted: with fewer of them the gate misses more, unnoticed."""
    if left_out := {case: record for case, record in session.records.items() if case not in session.accepted}:
        raise MeasurementError(f"session {number}, without a fault, was not accepted: {_words(left_out)}")


def _unplanted(stage: _Stage) -> tuple[str, str, str]:
    _say("a session without a fault")
    session = stage.measure("nothing")
    is_passed = session.accepted == session.records.keys()
    return "nothing", PASSED if is_passed else "FALSE ALARM", _words(session.records)


def _planted(stage: _Stage, fault: Planted) -> tuple[str, str, str]:
    _say(f"a session with {fault.title}")
    session = stage.measure(fault.name, fault.tests)
    cases = session.of(fault.tests[0])
    kinds = {record["verdict"]["kind"] for record in cases.values()}
    is_seen = kinds == {fault.verdict} if fault.verdict else bool(kinds)
    entered = not session.accepted.isdisjoint(cases)
    said = _words(cases) if fault.verdict else "its test failed after it was measured"
    outcome = FOUND if is_seen and not entered else "not measured" if kinds == {"invalid"} else "MISSED"
    return fault.title, outcome, f"{said}; {'accepted' if entered else 'not accepted'}"


def _words(records: Mapping[str, Mapping[str, Any]]) -> str:
    """The verdicts, each with the reason of one of its cases."""
    verdicts = {record["verdict"]["kind"]: record["verdict"]["reason"] for record in records.values()}
    return "; ".join(f"{kind}: {reason}" for kind, reason in verdicts.items())


class _Stage:
    """A folder with the tests and baselines. Each session with a fault has a copy of both and an own journal, so that
    none sees another's fault."""

    def __init__(self, folder: Path, marker: str, options: Sequence[str]) -> None:
        self._folder, self._marker, self._options = folder, marker, options
        shutil.copy(TESTS, folder / TEST)
        (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")

    def measure(self, planted: str = "", tests: Sequence[str] = ()) -> Session:
        """Measures these tests, or all tests. Raises DeviceUnavailableError with the reason where no device of the
        marker is here, MeasurementError where pytest ends otherwise before it measures."""
        baselines, journal = self._folder / (planted or "baselines"), self._journal(planted)
        if planted:
            shutil.copytree(self._folder / "baselines", baselines)
        places = (f"--npubench-journal={journal}", f"--npubench-baselines={baselines}", "--npubench-accept")
        config = (f"--rootdir={self._folder}", f"--config-file={self._folder / 'pytest.ini'}", "-p", "no:cacheprovider")
        chosen = [f"{TEST}::{test}" for test in tests] or [TEST]
        done = guarded.run(
            [
                sys.executable,
                "-m",
                "pytest",
                *chosen,
                "-m",
                self._marker,
                "-rs",
                *config,
                *places,
                LOCK,
                *self._options,
            ],
            limit_s=LIMIT_S,
            env={**os.environ, PLANTED: planted},
            folder=self._folder,
        )
        records = _records(journal)
        if not records:
            raise why_not(done.stdout + done.stderr, self._marker)
        return Session(records=records, accepted=_accepted(baselines, {one["session"] for one in records.values()}))

    def let_in(self, session: Session) -> Session:
        """Accepts the cases of a faultless session that wait for a person: where sessions differ one may be
        faster than all before it."""
        waiting = {case for case, record in session.records.items() if record["verdict"]["kind"] == "improved"}
        if not waiting - session.accepted:
            return session
        from pytest_npubench.store.accept_run import accept_run
        from pytest_npubench.store.journal_reader import read_journal
        from pytest_npubench.store.waiting import Allowed

        allowed = Allowed(improved=tuple(sorted(waiting)), reason="a session without a fault")
        journal = read_journal(self._journal(""))
        accept_run(journal, journal.sessions[-1:], self._folder / "baselines", allowed=allowed)
        return replace(session, accepted=session.accepted | waiting)

    def _journal(self, planted: str) -> Path:
        return self._folder / f"journal-{planted}.jsonl"


def _records(journal: Path) -> dict[str, Mapping[str, Any]]:
    """The case records of the newest session, by case."""
    from pytest_npubench.store.journal_reader import read_journal
    from pytest_npubench.store.journal_runs import case_records

    sessions = read_journal(journal).sessions[-1:] if journal.exists() else ()
    return {record["case"]: record for record in case_records(sessions)}


def _accepted(baselines: Path, sessions: Collection[str]) -> frozenset[str]:
    from pytest_npubench.store.baselines import Baselines

    return frozenset(
        name
        for file in Baselines.load(baselines, missing_ok=True).files
        for name, case in file.cases.items()
        if any(one.session.partition("@")[0] in sessions for one in case.sessions)
    )


def why_not(output: str, marker: str) -> DeviceUnavailableError | MeasurementError:
    """Returns why nothing was measured or accepted, in the words of the skipped tests; else the output's last lines
    say why, which are printed."""
    lines = [line for line in output.splitlines() if line.strip()]
    skipped = [line.partition(": ")[2].partition(": ")[2] or line for line in lines if line.startswith("SKIPPED ")]
    if skipped:
        return DeviceUnavailableError("; ".join(dict.fromkeys(skipped)))
    if not lines:
        return MeasurementError(f"-m {marker!r}: pytest printed nothing")
    if any("/ 0 selected" in line for line in lines):
        return MeasurementError(f"-m {marker!r} selects none of cpu, cuda and tpu, on which the tests of selfcheck run")
    _say(plain_lines("\n".join(lines[-NUM_LAST_LINES:])))
    return MeasurementError(f"-m {marker!r} gave nothing that counts: the lines above are the last of its run")


def _say(text: str) -> None:
    """Prints to stderr, since the table goes to stdout."""
    print(text, file=sys.stderr, flush=True)
