"""Which sessions of a journal are one run, whether all of it can be used, and which of a case's tries counts.

Under pytest-xdist each worker writes a session of its own; all sessions of a run bear its id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pytest_npubench.errors import JournalError, did_you_mean
from pytest_npubench.store.journal_reader import DamagedSession, Journal, Record, Session
from pytest_npubench.verdict import FAILING, VerdictKind

RED = frozenset(kind.value for kind in FAILING)
Faults = Mapping[tuple[str, object, str], str]
"""What the tests of cases did other than pass, by session, device and case; empty where they passed."""


def chosen_sessions(journal: Journal, wanted: str | None) -> tuple[Session, ...]:
    """The session of that id, or the latest run's. Raises JournalError where there is none with a case, or where it is
    damaged: an earlier one is not taken in its place."""
    if wanted is not None and any(session.id == wanted for session in journal.damaged):
        raise JournalError(f"journal {journal.path}: session {wanted} is damaged: {journal.why_damaged(wanted)}")
    sessions = [session for session in journal.sessions if _has_cases(session)]
    if wanted is not None:
        sessions = [session for session in sessions if session.id == wanted]
    _check_latest(journal, sessions, wanted)
    if not sessions:
        others = [session.id for session in journal.sessions if _has_cases(session)]
        if wanted is None:
            raise JournalError(f"journal {journal.path}: {'; '.join(['no session has cases', *journal.remarks])}")
        hint = f"sessions with cases: {', '.join(others) or 'none'}{did_you_mean(wanted, others)}"
        raise JournalError(f"journal {journal.path}: no session {wanted!r} has cases; {hint}")
    if wanted is not None:
        return (sessions[-1],)
    return tuple(session for session in run_of(journal, sessions[-1]) if _has_cases(session))


def sessions_of(journal: Journal, run: str) -> tuple[Session, ...]:
    """The run's sessions that have a case. Raises JournalError where none has, or one of them is damaged."""
    sessions = tuple(session for session in journal.sessions if session.run == run)
    check_whole(journal, sessions, run)
    if not any(map(_has_cases, sessions)):
        raise JournalError(f"journal {journal.path}: the run {run} has no cases in it")
    return tuple(filter(_has_cases, sessions))


def case_records(sessions: Iterable[Session]) -> list[Record]:
    """The cases of these sessions as their tests left them."""
    read = tuple(sessions)
    faults = test_faults(read)
    return [
        as_test_left(record, faults.get((record["session"], record.get("device"), record["case"]), ""))
        for session in read
        for record in session.records
        if record["record"] == "case"
    ]


def counted_cases(sessions: Iterable[Session]) -> list[Record]:
    """The case records of a run's sessions, of a case that was tried several times the worst."""
    counted: dict[tuple[object, ...], Record] = {}
    for record in case_records(sessions):
        key = (record["case"], record["digest"], record["fingerprint"], record.get("device"))
        counted[key] = worse(counted.get(key), record)
    return list(counted.values())


def test_faults(sessions: Iterable[Session]) -> Faults:
    """Collects the faults that the journal's records of tests tell."""
    faults: dict[tuple[str, object, str], str] = {}
    for record in (record for session in sessions for record in session.records if record["record"] == "outcome"):
        about = (record["session"], record["device"], record["case"])
        passed = record["outcome"] == "passed"
        what = "" if passed else measured_by(record.get("reason") or record["outcome"])
        faults[about] = faults.get(about) or what
    return faults


def measured_by(what: str) -> str:
    """The fault of a test that did `what`."""
    return f"was measured by a test that {what}"


def as_test_left(record: Record, fault: str) -> Record:
    """The case's record. A case whose test has a fault is invalid and its metrics have no verdicts: nobody knows
    whether the right work was timed. One that is red says why its test failed, and an unavailable one why it did not
    run."""
    kind = record["verdict"]["kind"]
    if not fault or kind in RED or kind == VerdictKind.UNAVAILABLE.value:
        return record
    metrics = {name: {**metric, "verdict": None} for name, metric in record.get("metrics", {}).items()}
    verdict = {"kind": VerdictKind.INVALID.value, "reason": fault}
    return {**record, "verdict": verdict, "metrics": metrics}


def worse(earlier: Record | None, later: Record) -> Record:
    """Chooses, of two tries of a case in one run, the one that counts: the first that failed, else the first."""
    return later if earlier is None or (_is_red(later) and not _is_red(earlier)) else earlier


def _is_red(record: Record) -> bool:
    return record["verdict"]["kind"] in RED


def run_of(journal: Journal, session: Session) -> tuple[Session, ...]:
    """The session and the others of its run, also where they have no case."""
    return tuple(other for other in journal.sessions if other.run == session.run)


def check_whole(journal: Journal, run: Sequence[Session], name: str | None = None) -> None:
    """Raises JournalError where a session of the run is damaged, or where that cannot be told: one whose header is lost
    and that was written at the same time. `run` has the sessions that are whole, `name` is the run's id if known."""
    names = {name, *(session.run for session in run)}
    lines = [line for session in run for line in session.lines]
    for session in journal.damaged:
        overlaps = bool(lines) and min(lines) < max(session.lines) and min(session.lines) < max(lines)
        if overlaps if session.run is None else session.run in names:
            why = journal.why_damaged(session.id)
            raise JournalError(f"journal {journal.path}: session {session.id} of this run is damaged: {why}")


def _check_latest(journal: Journal, sessions: Sequence[Session], wanted: str | None) -> None:
    """Raises JournalError where a damaged session came after all of these, and none was asked for by name."""
    last = sessions[-1].lines[0] if sessions else 0
    later = [session for session in journal.damaged if max(session.lines) > last and _has_cases(session)]
    if wanted is None and later:
        later_id = later[-1].id
        raise JournalError(
            f"journal {journal.path}: the latest run may be that of session {later_id}, which is damaged: "
            f"{journal.why_damaged(later_id)}; name another with --session"
        )


def _has_cases(session: Session | DamagedSession) -> bool:
    return any(record["record"] == "case" for record in session.records)
