"""Reading a journal back: its sessions, the latest result of each case, and the rounds a campaign can go on from.

A file may end in the middle of a line, because a writer was killed: that line was never acknowledged, so it is dropped
and reported. Any other line that is damaged, missing, doubled or out of order is named, and the session it belongs to
is left out as a whole: `Journal.damage` says what, `Journal.damaged` has what is left of it. The others are used.

Which session a damaged line belongs to is told by the id that it still bears, else by the numbers that are missing
around it, else it may be any that was open there: begun before it, not ended, and not proven whole by its numbers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_npubench.core.measurement import TOLD_BY_COMPILER, CacheState, CompileRecord
from pytest_npubench.errors import FormatVersionError, JournalError, StoreError
from pytest_npubench.store.fingerprint import Fingerprint
from pytest_npubench.store.journal_format import (
    FORMAT,
    MAX_BYTES,
    READABLE_VERSIONS,
    check_depth,
    check_head,
    check_record,
    unsealed,
    version_text,
)
from pytest_npubench.store.json_text import JsonError, decode, take
from pytest_npubench.store.line_file import SEARCH_BYTES, read_whole

Record = Mapping[str, Any]
NUM_NAMED = 3
_CLAIM = re.compile(rb'"session":"([^"\\]{1,200})"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One writer's session: its session record as `header`, and all its other records in the order written. `lines` are
    the numbers of their lines in the file, from 1, the header's first."""

    id: str
    header: Record
    records: tuple[Record, ...]
    lines: tuple[int, ...]

    @property
    def run(self) -> str | None:
        """The id of the run that the session belongs to; None in version 1, which has none."""
        return None if self.header["version"] == 1 else self.header.get("run", self.id)

    @property
    def end(self) -> Record | None:
        """The end record; None where the session still runs or was killed."""
        return next((record for record in self.records if record["record"] == "end"), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """What is wrong at a line, and the sessions that it may belong to, which are not used."""

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
        """In words what of the journal is not used: what a killed writer left, and damage."""
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
        own = [damage for damage in self.damage if session in damage.sessions]
        more = f" and {len(own) - 1} more" if len(own) > 1 else ""
        return f"line {own[0].line}{own[0].what}{more}"

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
        found: dict[str, dict[int, Record]] = {}
        for record in self._of_kind("round", sessions):
            if (record["campaign"], record["campaign_digest"], record["fingerprint"]) != wanted:
                continue
            session, index = record["session"], record["round"]
            if index == 0:
                found[session] = {}
            elif session not in found:
                found[session] = self._gone_on_from(found, session, index)
            found[session][index] = record
        latest = next((found[session] for session in self._latest_first() if session in found), {})
        return tuple(latest[index] for index in sorted(latest))

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

    def _gone_on_from(self, found: Mapping[str, Mapping[int, Record]], session: str, index: int) -> dict[int, Record]:
        """The rounds before `index` that a session took over."""
        order = self._latest_first()
        earlier = (found[name] for name in order[order.index(session) + 1 :] if index - 1 in found.get(name, {}))
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
    try:
        raw = read_whole(path, MAX_BYTES)
    except OSError as error:
        raise JournalError(f"journal {path}: {error.strerror}") from error
    check_head(path, raw[:SEARCH_BYTES])
    *lines, tail = raw.split(b"\n")
    reading = _Reading(path)
    for number, line in enumerate(lines, start=1):
        reading.add(number, line)
    torn = [
        f"before line {number}: {record['num_bytes']} bytes of a line whose writer was killed"
        for number, record in reading.records
        if record["record"] == "torn"
    ]
    if tail:
        torn.append(f"line {len(lines) + 1}: {len(tail)} bytes without a line end; their writer was killed")
    return reading.journal(tuple(torn))


@dataclass(slots=True)
class _Own:
    """What was read of a session so far. `next` is the number of its next line; `gaps` are the stretches of the file,
    between two line numbers, in which some of its lines are missing, and how many."""

    header: Record | None = None
    records: list[Record] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    next: int = 0
    gaps: list[tuple[int, int, int]] = field(default_factory=list)
    ended_at: int | None = None

    @property
    def is_sealed(self) -> bool:
        return self.header is None or self.header["version"] != 1

    def gap_at(self, line: int) -> int:
        """How many of its lines are missing around there."""
        return sum(number for after, before, number in self.gaps if after < line < before)

    def may_own(self, line: int) -> bool:
        """Whether a line that cannot be read may be one of its own."""
        begins = self.lines[0] if self.header is not None else 0
        if not begins < line or (self.ended_at is not None and self.ended_at < line):
            return False
        return not self.is_sealed or line > self.lines[-1] or self.gap_at(line) > 0


class _Reading:
    """A journal while its lines are read one after the other."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._own: dict[str, _Own] = {}
        self._unreadable: list[tuple[int, str, str | None]] = []  # line, what, the session it says it is of
        self._damage: list[Damage] = []
        self.records: list[tuple[int, Record]] = []

    def add(self, number: int, line: bytes) -> None:
        sealed = unsealed(line)
        try:
            record = self._record(number, *(sealed or (line, None)))
        except JsonError as error:
            self._note_unreadable(number, line, error, sealed)
            return
        if record is None:
            return
        own = self._own.setdefault(record["session"], _Own())
        if sealed is not None:
            self._count(number, record["session"], own, sealed[1])
        own.lines.append(number)
        if record["record"] == "session":
            own.header = record
            return
        own.records.append(record)
        self.records.append((number, record))
        if record["record"] == "end":
            own.ended_at = number

    def journal(self, torn: tuple[str, ...]) -> Journal:
        for number, what, claim in self._unreadable:
            self._damage.append(Damage(line=number, what=what, sessions=self._owners(number, claim)))
        bad = {session for damage in self._damage for session in damage.sessions}
        whole: list[Session] = []
        damaged: list[DamagedSession] = []
        for name, own in self._own.items():
            records, lines = tuple(own.records), tuple(own.lines)
            if name in bad or own.header is None:
                damaged.append(DamagedSession(id=name, header=own.header, records=records, lines=lines))
            else:
                whole.append(Session(id=name, header=own.header, records=records, lines=lines))
        return Journal(
            path=self._path,
            sessions=tuple(whole),
            records=tuple(record for _, record in self.records if record["session"] not in bad),
            torn=torn,
            damage=tuple(sorted(self._damage, key=lambda damage: damage.line)),
            damaged=tuple(damaged),
        )

    def _record(self, number: int, body: bytes, sequence: int | None) -> Record | None:
        """The record; None where it is a second header. Raises JsonError, FormatVersionError."""
        check_depth(body)
        record: Record = decode(body)
        session = take(record, "session", (str,))
        own = self._own.get(session)
        if take(record, "record", (str,)) == "session":
            self._check_version(number, record, sequence)
            if own is not None and own.header is not None:
                self._damage.append(Damage(line=number, what=": the session begins a second time", sessions=(session,)))
                return None
        elif sequence is None and own is None:
            raise JsonError(f"session: {session!r} has no session record before this line")
        elif sequence is None and own is not None and own.is_sealed:
            raise JsonError("its check sum does not fit")
        check_record(record)
        return record

    def _check_version(self, number: int, record: Record, sequence: int | None) -> None:
        form, version = take(record, "format", (str,)), take(record, "version", (int,))
        if form != FORMAT:
            raise JsonError(f"format: want {FORMAT!r}, found {form!r}")
        if (sequence is None) != (version == 1):
            raise JsonError("its check sum does not fit")
        if version not in READABLE_VERSIONS:
            raise FormatVersionError(f"journal {self._path} line {number}: {version_text(version)}")

    def _count(self, number: int, session: str, own: _Own, sequence: int) -> None:
        """Whether the line comes next in its session."""
        if sequence > own.next:
            missing = sequence - own.next
            own.gaps.append((own.lines[-1] if own.lines else 0, number, missing))
            what = f": {missing} line{'' if missing == 1 else 's'} of its session before it missing"
            self._damage.append(Damage(line=number, what=what, sessions=(session,)))
        elif sequence < own.next:
            what = ": a line of its session that stands twice or out of place"
            self._damage.append(Damage(line=number, what=what, sessions=(session,)))
        own.next = max(own.next, sequence + 1)

    def _note_unreadable(self, number: int, line: bytes, error: JsonError, sealed: tuple[bytes, int] | None) -> None:
        claim = _CLAIM.search(line)
        session = claim[1].decode("utf-8", errors="replace") if claim else None
        what = f"{f' column {error.column}' if error.column else ''}: {error}"
        if sealed is not None and session is not None:  # not damaged but wrong, by who wrote it
            own = self._own.setdefault(session, _Own())
            own.next = max(own.next, sealed[1] + 1)
            own.lines.append(number)
            self._damage.append(Damage(line=number, what=what, sessions=(session,)))
        else:
            self._unreadable.append((number, what, session))

    def _owners(self, line: int, claim: str | None) -> tuple[str, ...]:
        """The sessions that a line which cannot be read may belong to."""
        possible = [name for name, own in self._own.items() if own.may_own(line)]
        if claim in possible:
            return (claim,)
        gaps = {name: gap for name in possible if (gap := self._own[name].gap_at(line))}
        if gaps and sum(gaps.values()) >= self._num_unreadable_within(line, [self._own[name] for name in gaps]):
            return tuple(gaps)
        return tuple(possible) if claim is None or claim in self._own else (*possible, claim)

    def _num_unreadable_within(self, line: int, owners: Sequence[_Own]) -> int:
        spans = [(after, before) for own in owners for after, before, _ in own.gaps if after < line < before]
        after, before = min(span[0] for span in spans), max(span[1] for span in spans)
        return sum(after < number < before for number, _, _ in self._unreadable)
