"""The first step: what earlier nights left, brought back before anything is measured.

Baselines come from the branch as it is now. Where the remote does not answer, those of the last time stand in for them,
and the step has failed: the night is measured, but not green.
"""

from __future__ import annotations

import shutil
from datetime import datetime, timezone
from pathlib import Path

from pytest_npubench.errors import JournalError, NightlyError, StoreError
from pytest_npubench.nightly.branch import FOLDER, Branch
from pytest_npubench.nightly.night import Night, Step
from pytest_npubench.nightly.state import StateFolder, write_sessions
from pytest_npubench.plain_text import counted
from pytest_npubench.store.baselines import Baselines
from pytest_npubench.store.journal_reader import read_journal

NUM_KEPT_SESSIONS = 30  # ten nights in doubt are a regression, and a night that was disturbed may be among them
PUBLISHED = "published"


def restore(night: Night, branch: Branch | None) -> Step:
    """Begin a night. `branch` is None where the state folder itself keeps the baselines.

    Raises NightlyError where no night can be begun, OSError where state or work tree cannot be written.
    """
    night.begin()
    night.baselines.mkdir()
    failures: list[str] = []
    notes = _restore_baselines(night, branch, failures)
    try:
        files = Baselines.load(night.baselines).files
        names = {session.session for file in files for case in file.cases.values() for session in case.sessions}
        notes.append(
            f"they hold {counted(len(names), 'session')} of {counted(sum(len(file.cases) for file in files), 'case')}"
        )
    except StoreError as error:
        failures.append(f"baselines cannot be used, so nothing is judged tonight: {error}")
        shutil.rmtree(night.baselines)
        night.baselines.mkdir()
    notes += _restore_journal(night.state, failures)
    lines = (*failures, *notes)
    return night.record(Step(name="restore", outcome="failed" if failures else "done", lines=lines))


def _restore_baselines(night: Night, branch: Branch | None, failures: list[str]) -> list[str]:
    kept = night.state.baselines
    if branch is None:
        _copy(kept, night.baselines)
        return [f"baselines from {kept}"]
    try:
        tip = branch.tip()
        if tip is None:
            seed_baselines(night.work, night.baselines)
            return [f"no branch {branch.name} yet: it begins with the baselines of the work tree"]
        branch.extract(tip, night.out)
    except NightlyError as error:
        _copy(kept, night.baselines)
        failures.append(f"baselines are those of the last time, since the branch could not be read: {error}")
        return []
    with night.state.scratch() as folder:
        shutil.copytree(night.baselines, folder / FOLDER, symlinks=True)
        night.state.keep_baselines(folder / FOLDER)
    return [f"baselines from branch {branch.name} at {tip[:12]}", *_only_in_work_tree(night)]


def seed_baselines(work: Path, target: Path) -> None:
    """Fills a new branch's baselines with the accepted baselines of the work tree. Raises OSError."""
    _copy(work / FOLDER, target)


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        ignored = shutil.ignore_patterns(".npubench", ".gitattributes", PUBLISHED)
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True, ignore=ignored)


def _only_in_work_tree(night: Night) -> list[str]:
    """Baselines that were accepted into the checked-out branch and are not on the nightly's: easily overlooked."""
    folder = night.work / FOLDER
    in_work_tree = [path.relative_to(folder) for path in folder.glob("*/*.json") if path.parent.name != PUBLISHED]
    missing = sorted(str(path) for path in in_work_tree if not (night.baselines / path).exists())
    return [f"not judged against, since only the work tree has it: {FOLDER}/{path}" for path in missing]


def _restore_journal(state: StateFolder, failures: list[str]) -> list[str]:
    if not state.journal.exists():
        return ["no journal of earlier nights"]
    try:
        journal = read_journal(state.journal)
    except JournalError as error:
        aside = _aside(state, "unreadable")
        state.journal.replace(aside)
        failures.append(f"a new journal begins: {error}; it is kept as {aside}")
        return []
    saved = state.read()
    ids = [session.id for session in journal.sessions]
    if journal.damage:
        aside = _aside(state, "damaged")
        shutil.copy2(state.journal, aside)
        write_sessions(state.journal, ids, state.journal)
        failures.append(f"{journal.left_out}; the journal as it was is kept as {aside}")
    notes = [f"the journal holds {counted(len(ids), 'session')}"]
    waiting = [session for session in ids if session not in saved.settled]
    if waiting:
        notes.append(f"not settled by an earlier night: {', '.join(waiting)}")
    old = [session for session in ids[:-NUM_KEPT_SESSIONS] if session not in waiting]
    if old and saved.is_uploaded:
        write_sessions(state.journal, old, state.shelf / f"{old[-1]}.jsonl")
        write_sessions(state.journal, [session for session in ids if session not in old], state.journal)
        notes.append(f"{counted(len(old), 'session')} went to {state.shelf}")
    return notes


def _aside(state: StateFolder, why: str) -> Path:
    """A name on the shelf for a journal that cannot be used as it is."""
    state.shelf.mkdir(parents=True, exist_ok=True)
    return state.shelf / f"{why}-{datetime.now(timezone.utc):%Y%m%dT%H%M%S}.jsonl"
