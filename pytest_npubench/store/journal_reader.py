"""Reading a journal back: its sessions, the latest result of each case, and the rounds a campaign can go on from.

A file may end in the middle of a line, because a writer was killed: that line was never acknowledged, so it is dropped
and reported. Any other line that cannot be read is an error that names its place, never a shorter journal.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_npubench.errors import JournalError, StoreError
from pytest_npubench.store.fingerprint import Fingerprint
from pytest_npubench.store.journal_format import HEAD_BYTES, check_head, check_record, check_session
from pytest_npubench.store.json_text import JsonError, decode, take
from pytest_npubench.store.line_file import read_whole

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One writer's session: its session record as `header`, and all its other records in the order written."""

    id: str
    header: Record
    records: tuple[Record, ...]

    @property
    def end(self) -> Record | None:
        """The end record; None where the session still runs or was killed."""
        return next((record for record in self.records if record["record"] == "end"), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """A journal as read: sessions in the order they began, records of all sessions in the order of the file.

    `torn` says in words what was dropped because a writer was killed; it is empty as a rule.
    """

    path: Path
    sessions: tuple[Session, ...]
    records: tuple[Record, ...]
    torn: tuple[str, ...]

    def cases(
        self, fingerprint: str | None, *, sessions: Collection[str] | None = None
    ) -> dict[tuple[str, str], Record]:
        """(case key, case digest) -> its latest case record under that fingerprint digest.

        `sessions` are the ids of the sessions to look at, None for all. A case that failed before its device was
        known stands under the fingerprint None.
        """
        return {
            (record["case"], record["digest"]): record
            for record in self._of_kind("case", sessions)
            if record["fingerprint"] == fingerprint
        }

    def rounds(
        self, campaign: str, campaign_digest: str, fingerprint: str, *, sessions: Collection[str] | None = None
    ) -> tuple[Record, ...]:
        """The round records of the campaign's latest run, by round index, each index once (the latest).

        A round 0 begins a run: what stands before it belongs to an earlier one and is left out.
        """
        wanted = (campaign, campaign_digest, fingerprint)
        found: dict[int, Record] = {}
        for record in self._of_kind("round", sessions):
            if (record["campaign"], record["campaign_digest"], record["fingerprint"]) != wanted:
                continue
            if record["round"] == 0:
                found.clear()
            found[record["round"]] = record
        return tuple(found[index] for index in sorted(found))

    def fingerprint(self, digest: str) -> Fingerprint:
        """The fingerprint that a record refers to. Raises JournalError where no device record has that digest."""
        for record in self._of_kind("device", None):
            if record["digest"] == digest:
                return self._fingerprint(record)
        raise JournalError(f"journal {self.path}: no device record has the digest {digest}")

    def _fingerprint(self, record: Record) -> Fingerprint:
        try:
            return Fingerprint.from_json(record["fingerprint"])
        except StoreError as error:
            raise JournalError(f"journal {self.path}: device record {record['digest']}: {error}") from None

    def _of_kind(self, kind: str, sessions: Collection[str] | None) -> Iterator[Record]:
        for record in self.records:
            if record["record"] == kind and (sessions is None or record["session"] in sessions):
                yield record


def read_journal(path: Path) -> Journal:
    """Read a journal; an empty file has no sessions.

    Raises JournalError where the file is missing, not a regular file, not a journal, or has a line that cannot be read
    (line and column are named); FormatVersionError where a session was written in a version that is not known.
    """
    raw = _read(path)
    check_head(path, raw[:HEAD_BYTES])
    *lines, tail = raw.split(b"\n")
    headers: dict[str, Record] = {}
    records: list[Record] = []
    torn: list[str] = []
    for number, line in enumerate(lines, start=1):
        record = _parse(path, number, line, headers)
        if record["record"] == "session":
            headers[record["session"]] = record
            continue
        records.append(record)
        if record["record"] == "torn":
            torn.append(f"before line {number}: {record['num_bytes']} bytes of a line whose writer was killed")
    if tail:
        torn.append(f"line {len(lines) + 1}: {len(tail)} bytes without a line end; their writer was killed")
    return Journal(path=path, sessions=_sessions(headers, records), records=tuple(records), torn=tuple(torn))


def _sessions(headers: Mapping[str, Record], records: list[Record]) -> tuple[Session, ...]:
    own: dict[str, list[Record]] = {session: [] for session in headers}
    for record in records:
        own[record["session"]].append(record)
    return tuple(Session(id=name, header=header, records=tuple(own[name])) for name, header in headers.items())


def _read(path: Path) -> bytes:
    try:
        if path.is_fifo():  # opening one would wait for its writer for ever
            raise JournalError(f"journal {path}: is a pipe; want a file")
        return read_whole(path)
    except OSError as error:
        raise JournalError(f"journal {path}: {error.strerror}") from error


def _parse(path: Path, number: int, line: bytes, headers: Mapping[str, Record]) -> Record:
    try:
        record = decode(line)
        session = take(record, "session", (str,))
        if take(record, "record", (str,)) == "session":
            check_session(path, number, record)
            if session in headers:
                raise JsonError(f"session: {session!r} begins a second time")
        elif session not in headers:
            raise JsonError(f"session: {session!r} has no session record before this line")
        check_record(record)
    except JsonError as error:
        place = f"line {number}" + (f" column {error.column}" if error.column else "")
        raise JournalError(f"journal {path} {place}: {error}") from None
    return record  # type: ignore[no-any-return]  # take() found it to be a mapping
