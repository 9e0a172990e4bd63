"""The journal's format: a line's seal, how a file is told to be a journal, and the versions.

A line of version 2 ends in its seal: its number within what its session wrote, from 0, and the CRC-32 of all bytes
before its last field, as 8 lower-case hex digits. Line 12 of a session ends in

    ..., "sequence":12,"crc32":"5a0c3f17"}

so that altered bytes and lines that are missing, doubled or out of order are seen. CRC-32 (ISO 3309) because the enemy
is a disk and not a forger: it sees every change within 32 bits in a row and misses one of 2^32 others. The last field
stands in one place, so that the bytes it covers are known without reading JSON. docs/formats.md shows a line of each
kind and the history of the versions; journal_records.py says what a record must hold.
"""

from __future__ import annotations

import re
import zlib
from pathlib import Path

from pytest_npubench.errors import FormatVersionError, JournalError

FORMAT = "npubench-journal"
VERSION = 2
READABLE_VERSIONS = (1, 2)
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
    if version and int(version[1]) not in READABLE_VERSIONS:
        raise FormatVersionError(f"journal {path}: {version_text(int(version[1]))}")


def version_text(version: int) -> str:
    known = " and ".join(map(str, READABLE_VERSIONS))
    return f"written by format {version}; this version reads {known}"
