"""The lines of some sessions out of a journal, which are a journal themselves.

A night's journal is handed on alone, and the state folder's one is shortened, since it is read again every night.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from pytest_npubench.store.journal_format import MAX_BYTES
from pytest_npubench.store.journal_reader import read_journal
from pytest_npubench.store.line_file import read_whole, replace_text


def write_sessions(journal: Path, sessions: Collection[str], target: Path) -> None:
    """Writes the journal's lines of these sessions, in their order, without damaged sessions. Raises OSError,
    JournalError."""
    kept = [line for session in read_journal(journal).sessions if session.id in sessions for line in session.lines]
    lines = read_whole(journal, MAX_BYTES).decode("ascii", errors="replace").split("\n")
    replace_text(target, "".join(f"{lines[number - 1]}\n" for number in sorted(kept)))
