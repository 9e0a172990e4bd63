"""The journal's format: a line's seal, and how a file is told to be a journal.

A line ends in its seal: its number within what its session wrote, from 0, and the CRC-32 of all bytes
before its last field, as 8 lower-case hex digits. Line 12 of a session ends in

    ..., "sequence":12,"crc32":"5a0c3f17"}

so that altered bytes and lines that are missing, doubled or out of order are seen. CRC-32 (ISO 3309) sees every change
within 32 bits in a row and misses one of 2^32 others. docs/formats.md shows a line of each kind.

Writer and reader check a record by the same rules. A field that a kind requires is there; one that it may have is of
its type, or null, where it is there. Numbers are finite as floats, times have an offset from UTC, and nothing is nested
deeper than core/documents.py reads. Other fields and other kinds of records are kept as they are.

Worked example: check_record({"record": "note", "session": "s", "text": 5}) raises
JsonError("text: want a string, found a whole number").

new_id names sessions and runs; who starts a run may give it its own name (RUN).
"""

from __future__ import annotations

import re
import secrets
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from pytest_npubench.core.record_reader import OPEN_JSON, WrongEntryError
from pytest_npubench.errors import FormatVersionError, JournalError
from pytest_npubench.store.json_text import JsonError, take
from pytest_npubench.verdict.case_record import CaseEntry, Samples

FORMAT = "npubench-journal"
VERSION = 2
HEAD = b'{"record":"session","format":"npubench-journal","version":'
MAX_BYTES = 1024 * 1024 * 1024  # a night is a few MB: what is larger is another file by mistake

_SEAL = re.compile(rb',"sequence":(0|[1-9][0-9]{0,14}),"crc32":"([0-9a-f]{8})"\}')
_SUM_BYTES = len(b',"crc32":"01234567"}')
_SEAL_BYTES = len(b',"sequence":') + 15 + _SUM_BYTES


def sealed(body: bytes, sequence: int) -> bytes:
    """A record's line with its end, of its JSON text without the line end."""
    counted = b'%s,"sequence":%d' % (body[:-1], sequence)
    return b'%s,"crc32":"%08x"}\n' % (counted, zlib.crc32(counted))


def unsealed(line: bytes) -> tuple[bytes, int] | None:
    """The record's JSON text and its number within the session; None where the line has no seal, or does not fit it."""
    seal = _SEAL.fullmatch(line, line.rfind(b',"sequence":', -_SEAL_BYTES))
    if seal is None or b"%08x" % zlib.crc32(line[:-_SUM_BYTES]) != seal[2]:
        return None
    return line[: seal.start()] + b"}", int(seal[1])


def check_head(path: Path, head: bytes) -> None:
    """Raises JournalError where a file does not begin as a journal does. An empty or torn beginning passes, and so does
    a damaged one, if a line after it has a seal that fits.

    Raises FormatVersionError where its first session was written in a version that is not known.
    """
    first, *others = head.split(b"\n")
    if not (first.startswith(HEAD) and unsealed(first)) and any(map(unsealed, (first, *others))):
        return
    if not head.startswith(HEAD[: len(head)]):
        raise JournalError(f"{path} is not a journal: a journal begins with {HEAD.decode()}")
    version = re.match(rb"(\d{1,9})[,}]", head[len(HEAD) :])
    if version and int(version[1]) != VERSION:
        raise FormatVersionError(f"journal {path}: {version_text(int(version[1]))}")


def version_text(version: int) -> str:
    return f"written by format {version}; this version reads {VERSION}"


Index = Annotated[int, Meta(ge=0, le=2**53, description="a whole number from 0 to 2^53")]


@dataclass(kw_only=True)
class SessionEntry:
    started_at: str
    worker: str | None
    host: Mapping[str, object]
    settings: Mapping[str, object]
    run: str | None = None

    def __post_init__(self) -> None:
        try:
            started = datetime.fromisoformat(self.started_at.replace("Z", "+00:00"))
        except ValueError:
            started = datetime.min
        # a year from either end of time: an offset of hours leads beyond it
        if started.tzinfo is None or not 1 < started.year < 9999:
            want = "want a time like 2026-11-21T13:05:00+00:00"
            raise WrongEntryError("started_at", f"{want}, found {self.started_at!r}")


@dataclass(kw_only=True)
class DeviceEntry:
    digest: str
    fingerprint: Mapping[str, object]


@dataclass(kw_only=True)
class CompileEntry:
    fingerprint: str
    name: str
    compile_s: float
    cache: Literal["cold", "warm"]
    campaign: str | None = None
    campaign_digest: str | None = None
    estimated_s: float | None = None
    flops: float | None = None
    accessed_bytes: float | None = None


@dataclass(kw_only=True)
class RoundEntry:
    fingerprint: str
    campaign: str
    campaign_digest: str
    round: Index
    points: Mapping[str, Samples]
    failures: Mapping[str, str] | None = None
    duration_s: float | None = None
    num_late_compiles: Index | None = None
    disturbed: str | None = None
    complete: bool | None = None


@dataclass(kw_only=True)
class OutcomeEntry:
    """What became of the test that measured a case on a device. `reason` says what it did where it did not pass."""

    case: str
    device: str | None
    outcome: Literal["passed", "failed", "skipped", "xfailed", "xpassed"]
    reason: str | None = None


@dataclass(kw_only=True)
class NoteEntry:
    text: str


@dataclass(kw_only=True)
class TornEntry:
    num_bytes: Index


@dataclass(kw_only=True)
class EndEntry:
    exit_status: int
    counts: Mapping[str, object]


KINDS: Mapping[str, type] = {
    "session": SessionEntry,
    "device": DeviceEntry,
    "compile": CompileEntry,
    "round": RoundEntry,
    "case": CaseEntry,
    "outcome": OutcomeEntry,
    "note": NoteEntry,
    "torn": TornEntry,
    "end": EndEntry,
}
"""What a reader may rely on: every record may have more fields, and there may be more kinds."""


def check_record(record: Any) -> None:
    """Raises JsonError where a record lacks what its kind requires, or holds what no reader could use; an unknown kind
    needs only record and session."""
    kind = take(record, "record", (str,))
    take(record, "session", (str,))
    if kind in KINDS:
        try:
            msgspec.convert(record, KINDS[kind])
        except msgspec.ValidationError as error:
            try:
                OPEN_JSON.record(KINDS[kind], record)  # slower, and names the place
            except WrongEntryError as named:
                raise JsonError(str(named)) from None
            raise JsonError(str(error)) from None


RUN = "NPUBENCH_RUN"
"""In the environment of a run whose starter looks for its sessions afterwards: the run's id."""


def new_id() -> str:
    """When it began, and 32 random bits: 20261121T130500-3f9a1c07."""
    return f"{datetime.now(timezone.utc):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
