"""Which sessions of a journal are one run.

Under pytest-xdist each worker writes a session of its own. The sessions of workers whose records lie between each
other's are taken as one run.
"""

from __future__ import annotations

from pytest_npubench.errors import JournalError
from pytest_npubench.store.journal_reader import Journal, Session


def chosen_sessions(journal: Journal, wanted: str | None) -> tuple[Session, ...]:
    """The session of that id, or the latest run's. Raises JournalError where there is none with a case."""
    sessions = [session for session in journal.sessions if _has_cases(session)]
    if wanted is not None:
        sessions = [session for session in sessions if session.id == wanted]
    if not sessions:
        known = ", ".join(session.id for session in journal.sessions if _has_cases(session)) or "none"
        asked = "no session has cases" if wanted is None else f"no session {wanted!r} has cases"
        raise JournalError(f"journal {journal.path}: {asked}; sessions with cases: {known}")
    if wanted is not None:
        return (sessions[-1],)
    return tuple(session for session in run_of(journal, sessions[-1]) if _has_cases(session))


def run_of(journal: Journal, session: Session) -> tuple[Session, ...]:
    """The session and those of the workers that wrote at the same time, also where they have no case."""
    return tuple(other for other in journal.sessions if other is session or _same_run(journal, other, session))


def _has_cases(session: Session) -> bool:
    return any(record["record"] == "case" for record in session.records)


def _same_run(journal: Journal, one: Session, other: Session) -> bool:
    """Whether two sessions are of workers that wrote at the same time."""
    if one.header["worker"] is None or other.header["worker"] is None or not (one.records and other.records):
        return False
    (begin, end), (other_begin, other_end) = _span(journal, one), _span(journal, other)
    return begin <= other_end and other_begin <= end


def _span(journal: Journal, session: Session) -> tuple[int, int]:
    """The places of a session's first and last record in the journal."""
    places = [place for place, record in enumerate(journal.records) if record["session"] == session.id]
    return places[0], places[-1]
