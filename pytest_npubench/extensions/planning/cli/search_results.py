"""The outcomes of a search in a file, a line each as they come: a search that was killed goes on where it was."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pytest_npubench.core.documents import json_value
from pytest_npubench.core.regular_file import read_text
from pytest_npubench.errors import StoreError
from pytest_npubench.extensions.planning.cli.searched_settings import Outcome

MAX_BYTES = 256 * 1024 * 1024
Outcomes = Mapping[str, list[Outcome]]
"""By Candidate.key."""


def read(path: Path | None) -> Outcomes:
    """A last line that was cut short by a kill is left out. Raises StoreError for what is no such file."""
    if path is None or not path.exists():
        return {}
    try:
        lines = read_text(path, MAX_BYTES).splitlines(keepends=True)
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"{path}: {error}") from error
    outcomes: dict[str, list[Outcome]] = {}
    for number, line in enumerate(lines, 1):
        try:
            entry = json_value(line)
            outcomes.setdefault(entry.pop("key"), []).append(Outcome(**entry))
        except (ValueError, KeyError, TypeError, AttributeError):
            if number < len(lines) or line.endswith("\n"):
                raise StoreError(f"{path}, line {number}: no result of a search; want the file of one") from None
    return outcomes


def append(path: Path | None, key: str, outcome: Outcome) -> None:
    """Raises StoreError where it cannot be written."""
    if path is None:
        return
    try:
        with path.open("a+b") as stream:
            if stream.tell():
                stream.seek(-1, os.SEEK_END)
                if stream.read(1) != b"\n":  # what a kill cut short
                    _cut(stream)
            stream.write((json.dumps({"key": key, **asdict(outcome)}) + "\n").encode())
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}") from error


def _cut(stream: Any) -> None:
    """Back to the end of the last whole line."""
    stream.seek(0)
    stream.truncate(stream.read().rfind(b"\n") + 1)
