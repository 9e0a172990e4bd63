"""A new journal of all that can be proven of a damaged one.

Sessions that are whole go over byte by byte. Of a damaged one that still has its header go the records that can be
read, each once and in the order they were written. Where doubling or order alone was wrong the session is whole again.
One that lost a record goes without its end and with a `salvaged` record behind that counts what it lost: it counts as
one that was killed, so it can be looked at, resumed and uploaded, and nobody accepts it.

Worked example: of a session whose lines 0 to 9 are there but for 4, its header and 7 records are kept (the end is not)
and sealed anew as 0 to 7, and line 8 says `"num_lost":1`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_npubench.errors import JournalError
from pytest_npubench.store.journal_format import MAX_BYTES, check_record, sealed, unsealed
from pytest_npubench.store.journal_reader import DamagedSession, Journal, read_journal
from pytest_npubench.store.json_text import JsonError, decode, encode
from pytest_npubench.store.line_file import read_whole, write_new

Line = tuple[float, bytes]
"""Where a line goes, in line numbers of the damaged journal, and the line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Salvaged:
    """What came over: whole sessions, damaged ones, and the records of both; and what did not: records that are missing
    or cannot be read, as far as that can be counted, and sessions without a header, of which nothing is used."""

    num_whole: int
    num_damaged: int
    num_records: int
    num_lost: int
    lost_sessions: tuple[str, ...]


def salvage(path: Path, output: Path) -> Salvaged:
    """Write what can be proven of the journal at `path` to `output`, which must not be there yet.

    Raises JournalError where the journal cannot be read, `output` is there or cannot be written, or nothing is left;
    FormatVersionError as read_journal.
    """
    journal = read_journal(path)
    try:
        raw = read_whole(path, MAX_BYTES).split(b"\n")
    except OSError as error:
        raise JournalError(f"journal {path}: {error.strerror}") from error
    lines: list[Line] = [(number, raw[number - 1]) for session in journal.sessions for number in session.lines]
    kept = [session for session in journal.damaged if session.header is not None]
    num_lost = 0
    for session in kept:
        own, num_own_lost = _of_damaged(journal, session, raw)
        lines += own
        num_lost += num_own_lost
    if not lines:
        raise JournalError(f"journal {path}: nothing in it can be salvaged")
    try:
        write_new(output, b"".join(line + b"\n" for _, line in sorted(lines)))
    except OSError as error:
        raise JournalError(f"{output}: {error.strerror}; want the name of a new file") from error
    headless = [session for session in journal.damaged if session.header is None]
    return Salvaged(
        num_whole=len(journal.sessions),
        num_damaged=len(kept),
        num_records=len(read_journal(output).records),
        num_lost=num_lost + sum(len(session.records) for session in headless),
        lost_sessions=tuple(session.id for session in headless),
    )


def _of_damaged(journal: Journal, session: DamagedSession, raw: Sequence[bytes]) -> tuple[list[Line], int]:
    """The lines of a damaged session as they can be kept, and how many of it are lost."""
    bodies = _bodies(session, raw)
    behind = [found for found in journal.damage if session.id in found.sessions and found.line > session.lines[-1]]
    num_lost = max(bodies) + 1 - len(bodies) + len(behind)
    is_sealed = session.header is not None and session.header["version"] != 1
    if not is_sealed:
        num_lost = sum(session.id in found.sessions for found in journal.damage)
    records = [bodies[number] for number in sorted(bodies)]
    if num_lost:
        records = [body for body in records if decode(body)["record"] != "end"]
        told = {"record": "salvaged", "session": session.id, "num_lost": num_lost}
        records.append(encode(told))
    if is_sealed:
        records = [sealed(body, number)[:-1] for number, body in enumerate(records)]
    places = [*sorted(session.lines)[: len(records)], *[session.lines[-1] + 0.5] * (len(records) - len(session.lines))]
    return list(zip(places, records, strict=True)), num_lost


def _bodies(session: DamagedSession, raw: Sequence[bytes]) -> dict[int, bytes]:
    """Number within the session -> the record's text, of the lines that can be used; of a line that stands twice the
    first. In version 1 lines are numbered as they stand."""
    found: dict[int, bytes] = {}
    for place, line in enumerate(session.lines):
        body, number = unsealed(raw[line - 1]) or (raw[line - 1], place)
        try:
            check_record(decode(body))
        except JsonError:
            continue
        found.setdefault(number, body)
    return found
