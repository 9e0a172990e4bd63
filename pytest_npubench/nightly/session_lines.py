"""The lines of some sessions out of a journal, which are a journal themselves.

A night's journal is handed on alone, and the state folder's one is shortened, since it is read again every night.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

from pytest_npubench.store.line_file import read_whole, replace_text


def write_sessions(journal: Path, sessions: Collection[str], target: Path) -> None:
    """Write the journal's whole lines of these sessions, in their order. Raises OSError; the journal is readable."""
    *lines, _torn = read_whole(journal).decode("ascii", errors="replace").split("\n")
    kept = [line for line in lines if json.loads(line)["session"] in sessions]
    replace_text(target, "".join(f"{line}\n" for line in kept))
