"""`npubench journal`: whether journals are whole."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npubench.cli.arguments import Commands, add_command, add_json_option, columns, print_document
from pytest_npubench.errors import StoreError

if TYPE_CHECKING:
    from pytest_npubench.store.journal_reader import DamagedSession, Journal, Record, Session

EXAMPLE = "npubench journal check .npubench/journal.jsonl"
WHOLE, DAMAGED = 0, 1


def add_parser(commands: Commands, about: str) -> None:
    parser = add_command(commands, "journal", about, EXAMPLE)
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    check = add_command(
        actions, "check", "say which sessions are whole and what is damaged; exit status 1 if any", EXAMPLE
    )
    check.add_argument("journals", metavar="JOURNAL", nargs="+", type=Path, help="a journal")
    add_json_option(check)
    check.set_defaults(run=run_check)


def run_check(arguments: argparse.Namespace) -> int:
    """Checks journals. A file that cannot be read at all counts as damaged, and the others are checked all the same."""
    checks = [_checked(path) for path in arguments.journals]
    if arguments.json:
        print_document("journal-check", journals=checks)
    else:
        print("\n\n".join(map(_text, checks)))
    return WHOLE if all(item["whole"] for item in checks) else DAMAGED


def _checked(path: Path) -> dict[str, Any]:
    from pytest_npubench.store.journal_reader import read_journal

    try:
        return _of_journal(read_journal(path))
    except StoreError as error:
        return {"journal": str(path), "whole": False, "error": str(error), "sessions": [], "damage": [], "torn": []}


def _of_journal(journal: Journal) -> dict[str, Any]:
    whole = [_of_session(session, session.end) for session in journal.sessions]
    damaged = [_of_session(session, None) for session in journal.damaged]
    return {
        "journal": str(journal.path),
        "whole": not journal.damage,
        "error": None,
        "sessions": [{**session, "whole": True} for session in whole]
        + [{**session, "whole": False} for session in damaged],
        "damage": [
            {"line": damage.line, "what": damage.what.lstrip(": "), "sessions": list(damage.sessions)}
            for damage in journal.damage
        ],
        "torn": list(journal.torn),
    }


def _of_session(session: Session | DamagedSession, end: Record | None) -> dict[str, Any]:
    header = session.header or {}
    return {
        "session": session.id,
        "run": session.run,
        **{name: header.get(name) for name in ("version", "worker", "started_at")},
        "records": len(session.records),
        "exit_status": None if end is None else end["exit_status"],
    }


def _text(checked: dict[str, Any]) -> str:
    if checked["error"] is not None:
        return str(checked["error"])
    rows = [
        (
            session["session"],
            session["started_at"] or "?",
            session["worker"] or "",
            str(session["records"]),
            "?" if session["version"] is None else str(session["version"]),
            _state(session),
        )
        for session in checked["sessions"]
    ]
    header = ("SESSION", "STARTED", "WORKER", "RECORDS", "VERSION", "STATE")
    lines = [f"{checked['journal']}: {'whole' if checked['whole'] else 'damaged'}"]
    lines += [columns([header, *rows])] if rows else ["no sessions"]
    lines += [
        f"line {line['line']}: {line['what']} (session {', '.join(line['sessions']) or 'none'})"
        for line in checked["damage"]
    ]
    return "\n".join([*lines, *checked["torn"]])


def _state(session: dict[str, Any]) -> str:
    if not session["whole"]:
        return "damaged"
    return "no end: killed, or still runs" if session["exit_status"] is None else f"ended with {session['exit_status']}"
