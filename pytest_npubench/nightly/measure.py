"""The step that measures: pytest in a process of its own, with journal, report and JUnit file where the night has them.

The command line has taken the tokens of the steps around it out of the environment before. pytest's journal lies in
the state folder from its first line on, so what was measured outlives a killed night. Accepting is the next step's,
from the journal: a night that could not push is accepted later, onto whatever the branch has become.
"""

from __future__ import annotations

import io
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import FrameType

from pytest_npubench.comparison.judged_share import JudgedShare, smallest_seen
from pytest_npubench.errors import StoreError
from pytest_npubench.nightly.night import Night, Step
from pytest_npubench.nightly.state import write_sessions
from pytest_npubench.processes.guarded import Guarded, ending
from pytest_npubench.store.journal_format import RUN, new_id
from pytest_npubench.store.journal_reader import Session, read_journal
from pytest_npubench.store.journal_runs import counted_cases

KEPT_BACK = {"GITHUB_STEP_SUMMARY"}
"""What of the environment the run is not told: where the night itself says what it did."""
INTERRUPT_WAIT_S = 30.0
INTERRUPTED = 2
MEANING = {
    1: "not green",
    INTERRUPTED: "pytest was interrupted",
    3: "pytest failed internally",
    4: "pytest could not run this",
    5: "no test was found",
    10: "cases could not be measured",
    11: "others used the machine",
    12: "too few cases were compared with a baseline",
}


def measure(night: Night, arguments: Sequence[str], environment: Mapping[str, str], *, lock: int) -> Step:
    """Run pytest with these arguments. Raises OSError, and NightlyError where no night was begun. Where SIGTERM or
    SIGINT comes meanwhile, what was measured is recorded, then KeyboardInterrupt is raised.

    pytest inherits `lock`, the state folder's lock, and is interrupted where the nightly is killed: no other begins
    while it still writes the journal.
    """
    night.steps()
    run = new_id()
    options = [
        f"--npubench-journal={night.state.journal}",
        f"--npubench-baselines={night.baselines}",
        f"--npubench-report={night.out / 'report.html'}",
        f"--junit-xml={night.out / 'junit.xml'}",
    ]
    command = [sys.executable, "-m", "pytest", *options, *arguments]
    public = {name: value for name, value in environment.items() if name not in KEPT_BACK}
    is_interrupted = False
    try:
        status, last = _run(night, command, {**public, RUN: run}, lock)
    except KeyboardInterrupt:
        is_interrupted, status, last = True, INTERRUPTED, "the nightly was told to end"
    new, damage = _sessions(night, run)
    ids = [session.id for session in new]
    if ids:
        write_sessions(night.state.journal, ids, night.out / "journal.jsonl")
    records = counted_cases(new)
    share = JudgedShare.of(records)
    kinds: dict[str, int] = {}
    for record in records:
        kinds[record["verdict"]["kind"]] = kinds.get(record["verdict"]["kind"], 0) + 1
    said = ", ".join(f"{number} {kind}" for kind, number in kinds.items()) or "no case"
    lines = [f"{said}; {share.num_judged} of {share.num_judgeable} compared with a baseline"]
    if status:
        meaning = MEANING.get(status, ending(status) if status < 0 else "an error")
        lines.insert(0, f"exit status {status}: {meaning}{f': {last}' if last else ''}")
    if share.unjudged and share.unjudged not in lines[0]:
        lines.append(share.unjudged)
    if seen := smallest_seen(records):
        lines.append(seen)
    if damage:
        lines.insert(0, damage)
    facts = {"exit_status": status, "sessions": ids, "counts": kinds}
    outcome = "failed" if status or damage else "done"
    step = night.record(Step(name="measure", outcome=outcome, lines=tuple(lines), facts=facts))
    if is_interrupted:
        raise KeyboardInterrupt
    return step


def _sessions(night: Night, run: str) -> tuple[Sequence[Session], str]:
    """The run's sessions in the state's journal, and in words what of the journal cannot be used."""
    if not night.state.journal.exists():
        return (), ""
    try:
        journal = read_journal(night.state.journal)
    except StoreError as error:
        return (), str(error)
    return [session for session in journal.sessions if session.run == run], journal.left_out if journal.damage else ""


def _run(night: Night, command: Sequence[str], environment: Mapping[str, str], lock: int) -> tuple[int, str]:
    """Runs a command, shows and keeps its output. Returns its exit status and the last line with an error."""
    last = ""
    with (night.out / "pytest.log").open("w", encoding="utf-8") as log:
        guarded = Guarded(
            command,
            grace_s=INTERRUPT_WAIT_S,
            env=environment,
            folder=night.work,
            pass_fds=(lock,),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        output = guarded.process.stdout
        assert output is not None  # it was asked for
        before = signal.signal(signal.SIGTERM, interrupt)
        try:
            for line in io.TextIOWrapper(output, encoding="utf-8", errors="replace"):
                sys.stdout.write(line)
                sys.stdout.flush()
                log.write(line)
                last = _reason(line) or last
            return guarded.process.wait(), last
        finally:  # interrupted, pytest ends its campaigns by itself, and writes its end record
            guarded.end()
            signal.signal(signal.SIGTERM, before)


def _reason(line: str) -> str:
    """The error that a line of pytest's output names, such as "ERROR: ...", or "!!! _pytest.outcomes.Exit: ... !!!" for
    an early end; empty without one."""
    if line.startswith("!!!"):
        return line.strip("! \n").removeprefix("_pytest.outcomes.Exit: ")
    return line.strip().removeprefix("ERROR: ").removeprefix("error: ") if line.lower().startswith("error") else ""


def interrupt(number: int, frame: FrameType | None) -> None:
    """Ends a night by SIGTERM as by SIGINT."""
    raise KeyboardInterrupt
