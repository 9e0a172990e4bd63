"""`npubench report`: the HTML report of a run that a journal holds.

Under pytest-xdist each worker writes a session of its own. The sessions of workers whose records lie between each
other's are taken as one run.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npubench.cli.arguments import add_command
from pytest_npubench.errors import ConfigError, JournalError, StoreError

if TYPE_CHECKING:
    from pytest_npubench.cli.arguments import Commands
    from pytest_npubench.store.journal_reader import Journal, Session

EXAMPLE = "npubench report .npubench/journal.jsonl -o report.html"


def add_parser(commands: Commands) -> None:
    parser = add_command(commands, "report", "write the HTML report of a run", EXAMPLE)
    parser.add_argument("journal", metavar="JOURNAL", type=Path, help="the journal of the run")
    parser.add_argument("-o", "--output", metavar="REPORT.html", type=Path, required=True, help="the file to write")
    parser.add_argument("--session", metavar="ID", help="this session only (default: the latest run that has cases)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Raises JournalError for a journal or session that cannot be used, ConfigError without the report extra,
    StoreError where the page cannot be written."""
    from pytest_npubench.store.journal_reader import read_journal

    try:
        from pytest_npubench.reports.html import render_html
    except ImportError as error:
        raise ConfigError(f"{error.name} is not installed: pip install pytest-npubench[report]") from error
    journal = read_journal(arguments.journal)
    sessions = chosen_sessions(journal, arguments.session)
    records = [record for session in sessions for record in session.records if record["record"] == "case"]
    try:
        arguments.output.write_text(render_html(records, journal), encoding="utf-8")
    except OSError as error:
        raise StoreError(f"{arguments.output}: {error.strerror}") from error
    print(f"wrote {arguments.output}: {len(records)} cases of session {', '.join(item.id for item in sessions)}")
    return 0


def chosen_sessions(journal: Journal, wanted: str | None) -> tuple[Session, ...]:
    """The session of that id, or the latest run's. Raises JournalError where there is none with a case."""
    sessions = [session for session in journal.sessions if _has_cases(session)]
    if wanted is not None:
        sessions = [session for session in sessions if session.id == wanted]
    if not sessions:
        known = ", ".join(session.id for session in journal.sessions if _has_cases(session)) or "none"
        asked = "no session has cases" if wanted is None else f"no session {wanted!r} has cases"
        raise JournalError(f"journal {journal.path}: {asked}; sessions with cases: {known}")
    if wanted is not None or sessions[-1].header["worker"] is None:
        return (sessions[-1],)
    return tuple(session for session in sessions if _same_run(journal, session, sessions[-1]))


def _has_cases(session: Session) -> bool:
    return any(record["record"] == "case" for record in session.records)


def _same_run(journal: Journal, one: Session, other: Session) -> bool:
    """Whether two sessions are of workers that wrote at the same time."""
    if one.header["worker"] is None or other.header["worker"] is None:
        return False
    (begin, end), (other_begin, other_end) = _span(journal, one), _span(journal, other)
    return begin <= other_end and other_begin <= end


def _span(journal: Journal, session: Session) -> tuple[int, int]:
    """The places of a session's first and last record in the journal."""
    places = [place for place, record in enumerate(journal.records) if record["session"] == session.id]
    return places[0], places[-1]
