"""A record of a journal that stays in its file until somebody asks what is in it.

A million lines are 200 MB of text and ten times as much as dictionaries. Most of them are rounds, notes and outcomes,
of which few are ever looked at, so only their place and what they are found by is kept.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pytest_npubench.errors import JournalError
from pytest_npubench.store.journal_format import unsealed
from pytest_npubench.store.json_text import JsonError, decode

AT_ONCE = frozenset(("session", "device", "case", "end", "torn"))
"""Kinds that every reader looks through."""
FOUND_BY = ("record", "session", "campaign", "campaign_digest", "fingerprint")
PIECE_BYTES = 4096


class JournalFile:
    """The file that records are read from again. It stays open, whatever takes its name, until the last record goes."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = os.dup(descriptor)
        self._latest: tuple[int, Mapping[str, Any]] = (-1, {})
        self._found_by: dict[tuple[Any, ...], Mapping[str, Any]] = {}
        weakref.finalize(self, os.close, self._descriptor)

    def found_by(self, record: Mapping[str, Any]) -> Mapping[str, Any]:
        """What a record is found by, which all that have the same share."""
        values = {name: record[name] for name in FOUND_BY if isinstance(record.get(name), str)}
        return self._found_by.setdefault(tuple(values.items()), values)

    def record(self, offset: int) -> Mapping[str, Any]:
        """The record whose line begins there. Raises JournalError where the line is not what it was."""
        if self._latest[0] != offset:
            line = bytearray()
            while b"\n" not in line and (piece := os.pread(self._descriptor, PIECE_BYTES, offset + len(line))):
                line += piece
            body = unsealed(bytes(line.partition(b"\n")[0]))
            try:
                self._latest = (offset, decode(body[0] if body else b""))
            except JsonError:
                raise JournalError(f"journal {self._path}: was written over while it was read") from None
        return self._latest[1]


class StoredRecord(Mapping[str, Any]):
    """Reads its line whenever anything else is asked for than what it is found by."""

    __slots__ = ("_file", "_found_by", "_offset")

    def __init__(self, file: JournalFile, offset: int, record: Mapping[str, Any]) -> None:
        self._file, self._offset, self._found_by = file, offset, file.found_by(record)

    def __getitem__(self, name: str) -> Any:
        found_by = self._found_by
        return found_by[name] if name in found_by else self._file.record(self._offset)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._file.record(self._offset))

    def __len__(self) -> int:
        return len(self._file.record(self._offset))

    def __repr__(self) -> str:
        return repr(dict(self))
