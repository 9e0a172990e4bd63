"""Reading a journal back: its sessions, the latest result of each case, and the rounds a campaign can go on from.

A file may end in the middle of a line, because a writer was killed: that line was never acknowledged, so it is dropped
and reported. Any other line that is damaged, missing, doubled or out of order is named, and the session it belongs to
is left out as a whole: `Journal.damage` says what, `Journal.damaged` has what is left of it. The others are used.
Nobody can tell whose a line was that cannot be read, so it leaves out every session that had begun and not ended there.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_npubench.core.measurement import TOLD_BY_COMPILER, CacheState, CompileRecord
from pytest_npubench.errors import FormatVersionError, JournalError, StoreError
from pytest_npubench.store.fingerprint import Fingerprint
from pytest_npubench.store.journal_format import (
    FORMAT,
    MAX_BYTES,
    VERSION,
    check_head,
    check_record,
    unsealed,
    version_text,
)
from pytest_npubench.store.json_text import JsonError, decode, take
from pytest_npubench.store.line_file import SEARCH_BYTES, lines_before, opened_whole
from pytest_npubench.store.stored_record import AT_ONCE, JournalFile, StoredRecord

Record = Mapping[str, Any]
NUM_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One writer's session: its session record as `header`, and all its other records in the order written. `lines` are
    the numbers of their lines in the file, from 1, the header's first."""

    id: str
    header: Record
    records: tuple[Record, ...]
    lines: tuple[int, ...]

    @property
    def run(self) -> str:
        """The id of the run that the session belongs to."""
        run: str = self.header.get("run", self.id)
        return run

    @property
    def end(self) -> Record | None:
        """The end record; None where the session still runs or was killed."""
        return next((record for record in self.records if record["record"] == "end"), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """What is wrong at a line, and the sessions that are not used for it."""

    line: int
    what: str
    sessions: tuple[str, ...]

    def __str__(self) -> str:
        return f"line {self.line}{self.what} (session {', '.join(self.sessions) or 'none'})"


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedSession:
    """What can be proven of a session that lost something: its header, None where that is lost, its records, and the
    numbers of their lines in the file, the header's first where there is one."""

    id: str
    header: Record | None
    records: tuple[Record, ...]
    lines: tuple[int, ...]

    @property
    def run(self) -> str | None:
        """The id of the run that the session belongs to; None where its header is lost."""
        return None if self.header is None else self.header.get("run", self.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """A journal as read: sessions in the order they began, records of these sessions in the order of the file.

    `torn` says in words what was dropped because a writer was killed; it is empty as a rule, and so are `damage` and
    `damaged`, the sessions left out for it.
    """

    path: Path
    sessions: tuple[Session, ...]
    records: tuple[Record, ...]
    torn: tuple[str, ...]
    damage: tuple[Damage, ...] = ()
    damaged: tuple[DamagedSession, ...] = ()

    @property
    def remarks(self) -> tuple[str, ...]:
        """Says in words what of the journal is not used: what a killed writer left, and damage."""
        return (*self.torn, *([self.left_out] if self.damage else []))

    @property
    def left_out(self) -> str:
        """One line on the damage."""
        more = f"; and {len(self.damage) - NUM_NAMED} more" if len(self.damage) > NUM_NAMED else ""
        what = "; ".join(map(str, self.damage[:NUM_NAMED]))
        number = len(self.damaged)
        return f"journal {self.path} is damaged, {number} session{'' if number == 1 else 's'} left out: {what}{more}"

    def why_damaged(self, session: str) -> str:
        """What is wrong with a damaged session, the first of it."""
        first, *others = (damage for damage in self.damage if session in damage.sessions)
        more = f" and {len(others)} more" if others else ""
        return f"line {first.line}{first.what}{more}"

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

        A round 0 begins a run; a session whose first round is a later one went on from the latest session before it
        that had the round in front. The session that began last counts: two that run at once do not mix.
        """
        wanted = (campaign, campaign_digest, fingerprint)
        of_sessions: dict[str, dict[int, Record]] = {}
        for record in self._of_kind("round", sessions):
            if (record["campaign"], record["campaign_digest"], record["fingerprint"]) != wanted:
                continue
            session, index = record["session"], record["round"]
            if index == 0:
                of_sessions[session] = {}
            elif session not in of_sessions:
                of_sessions[session] = self._gone_on_from(of_sessions, session, index)
            of_sessions[session][index] = record
        latest = next((of_sessions[session] for session in self._latest_first() if session in of_sessions), {})
        return tuple(dict(latest[index]) for index in sorted(latest))

    def compiles(self, campaign_digest: str | None, fingerprint: str) -> tuple[CompileRecord, ...]:
        """What was compiled for a campaign, the latest record of each binary."""
        return tuple(
            {
                record["name"]: CompileRecord(
                    name=record["name"],
                    compile_s=record["compile_s"],
                    cache=CacheState(record["cache"]),
                    **{name: record.get(name) for name in TOLD_BY_COMPILER},
                )
                for record in self._of_kind("compile", None)
                if (record.get("campaign_digest"), record["fingerprint"]) == (campaign_digest, fingerprint)
            }.values()
        )

    def _gone_on_from(
        self, of_sessions: Mapping[str, Mapping[int, Record]], session: str, index: int
    ) -> dict[int, Record]:
        """The rounds before `index` that a session took over."""
        order = self._latest_first()
        before = order[order.index(session) + 1 :]
        earlier = (of_sessions[name] for name in before if index - 1 in of_sessions.get(name, {}))
        return {number: record for number, record in next(earlier, {}).items() if number < index}

    def _latest_first(self) -> list[str]:
        return [session.id for session in reversed(self.sessions)]

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

    Raises JournalError where the file is missing, not a regular file, too large or not a journal; FormatVersionError
    where a session was written in a version that is not known. Damaged lines do not raise: see `Journal.damage`.
    """
    number = 0
    try:
        with opened_whole(path, MAX_BYTES) as (file, end, num_torn):
            check_head(path, os.pread(file.fileno(), SEARCH_BYTES, 0))
            reading = _Reading(path, JournalFile(path, file.fileno()))
            for number, (offset, line) in enumerate(lines_before(file, end), start=1):
                reading.add(number, line, offset)
    except OSError as error:
        raise JournalError(f"journal {path}: {error.strerror}") from error
    if num_torn:
        reading.torn.append(f"line {number + 1}: {num_torn} bytes without a line end; their writer was killed")
    return reading.journal()


@dataclass(slots=True)
class _OpenSession:
    """What was read of a session so far. `next_number` is the number that its next line has."""

    header: Record | None = None
    records: list[Record] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    next_number: int = 0
    has_ended: bool = False


class _Reading:
    """A journal while its lines are read one after the other."""

    def __init__(self, path: Path, file: JournalFile) -> None:
        self._path, self._file = path, file
        self._sessions: dict[str, _OpenSession] = {}
        self._damage: list[Damage] = []
        self._records: list[Record] = []
        self.torn: list[str] = []

    def add(self, line_number: int, line: bytes, offset: int) -> None:
        """Take the next line, which begins at that byte. Raises FormatVersionError."""
        body, number = unsealed(line) or (line, None)
        session: str | None = None
        try:
            record: Record = decode(body)
            if number is None:
                raise JsonError("its check sum does not fit")
            session = take(record, "session", (str,))
            opened = self._sessions.setdefault(session, _OpenSession())
            self._add_record(line_number, opened, record, number, offset)
        except JsonError as error:
            column = f" column {error.column}" if error.column else ""
            still_open = (name for name, opened in self._sessions.items() if not opened.has_ended)
            self._note(line_number, f"{column}: {error}", *(still_open if session is None else [session]))

    def journal(self) -> Journal:
        bad = {session for damage in self._damage for session in damage.sessions}
        whole: list[Session] = []
        damaged: list[DamagedSession] = []
        for name, read in self._sessions.items():
            records, lines = tuple(read.records), tuple(read.lines)
            if name in bad or read.header is None:
                damaged.append(DamagedSession(id=name, header=read.header, records=records, lines=lines))
            else:
                whole.append(Session(id=name, header=read.header, records=records, lines=lines))
        return Journal(
            path=self._path,
            sessions=tuple(whole),
            records=tuple(record for record in self._records if record["session"] not in bad),
            torn=tuple(self.torn),
            damage=tuple(self._damage),
            damaged=tuple(damaged),
        )

    def _add_record(self, line_number: int, session: _OpenSession, record: Record, number: int, offset: int) -> None:
        """Raises JsonError where the record is not what its kind requires, FormatVersionError."""
        session.lines.append(line_number)
        is_header = record.get("record") == "session"
        if is_header and session.header is not None:
            raise JsonError("the session begins a second time")
        self._count(line_number, session, record["session"], number)
        if is_header:
            self._check_version(line_number, record)
        check_record(record)
        if is_header:
            session.header = record
            return
        kind = record["record"]
        session.has_ended = session.has_ended or kind == "end"
        if kind == "torn":
            num_bytes = record["num_bytes"]
            self.torn.append(f"before line {line_number}: {num_bytes} bytes of a line whose writer was killed")
        kept = record if kind in AT_ONCE else StoredRecord(self._file, offset, record)
        session.records.append(kept)
        self._records.append(kept)

    def _check_version(self, line_number: int, record: Record) -> None:
        form, version = take(record, "format", (str,)), take(record, "version", (int,))
        if form != FORMAT:
            raise JsonError(f"format: want {FORMAT!r}, found {form!r}")
        if version != VERSION:
            raise FormatVersionError(f"journal {self._path} line {line_number}: {version_text(version)}")

    def _count(self, line_number: int, session: _OpenSession, name: str, number: int) -> None:
        """Name what the line's number says is wrong: lines before it are missing, or it does not stand here."""
        missing = number - session.next_number
        if missing > 0:
            lines = "line" if missing == 1 else "lines"
            self._note(line_number, f": {missing} {lines} of its session before it missing", name)
        elif missing < 0:
            self._note(line_number, ": a line of its session that stands twice or out of place", name)
        session.next_number = max(session.next_number, number + 1)

    def _note(self, line_number: int, what: str, *sessions: str) -> None:
        self._damage.append(Damage(line=line_number, what=what, sessions=sessions))
