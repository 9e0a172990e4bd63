"""Bytes of machine code in a program that XLA:GPU has serialised: an ELF object (cubin) for each kernel.

The program is the records of a Riegeli file, compressed by Snappy. Of both formats only what is met there is read, and
what is not met is None, as another release of XLA may write otherwise (Riegeli, doc/riegeli_records_file_format.md;
Snappy, format_description.txt; ELF-64 object file format 1.5, file header).
"""

from __future__ import annotations

import re
import struct

SIGNATURE = bytes.fromhex("83af70d10d884a3f")  # the hash that every Riegeli file begins with
BLOCK, BLOCK_HEADER, CHUNK_HEADER = 1 << 16, 24, 40
ELF = b"\x7fELF\x02"


def cubin_bytes(program: bytes) -> float | None:
    """Of all its cubins; None where they cannot be found."""
    try:
        records = b"".join(_records(program))
        return sum(_elf_bytes(records, found.start()) for found in re.finditer(ELF, records)) or None
    except (IndexError, ValueError, struct.error):
        return None


def _records(program: bytes) -> list[bytes]:
    """What the chunks of records hold. Raises ValueError where they are compressed in another way."""
    start = program.index(SIGNATURE)
    blocks = range(start, len(program), BLOCK)
    data = b"".join(program[begin + BLOCK_HEADER : begin + BLOCK] for begin in blocks)
    records, at = [], 0
    while at + CHUNK_HEADER <= len(data):
        (size,) = struct.unpack_from("<Q", data, at + 8)  # behind the header's hash
        kind, chunk = data[at + 24 : at + 25], data[at + CHUNK_HEADER : at + CHUNK_HEADER + size]
        if kind not in (b"s", b"r"):  # what follows the file in its message
            break
        if kind == b"r":
            records.append(_values(chunk))
        at += CHUNK_HEADER + size
    return records


def _values(chunk: bytes) -> bytes:
    """Returns the records of a chunk, behind their sizes."""
    if chunk[:1] != b"s":
        raise ValueError(f"compression {chunk[:1]!r} is not Snappy")
    sizes, at = _varint(chunk, 1)
    _, at = _varint(chunk, at + sizes)
    return snappy(chunk[at:])


def snappy(data: bytes) -> bytes:
    """Uncompressed. Raises ValueError or IndexError for what is not Snappy's."""
    length, at = _varint(data, 0)
    out = bytearray()
    while at < len(data) and len(out) < length:
        tag, at = data[at], at + 1
        if tag & 3 == 0:
            count = tag >> 2
            if count >= 60:  # the length stands in the next 1 to 4 bytes
                width = count - 59
                count, at = int.from_bytes(data[at : at + width], "little"), at + width
            out += data[at : at + count + 1]
            at += count + 1
            continue
        width = (1, 2, 4)[(tag & 3) - 1]
        offset, at = int.from_bytes(data[at : at + width], "little"), at + width
        count = (tag >> 2) + 1
        if width == 1:
            offset, count = offset | tag >> 5 << 8, (tag >> 2 & 7) + 4
        if not 0 < offset <= len(out):
            raise ValueError("a copy from before the beginning")
        start = len(out) - offset
        repeated = out[start : start + count]  # shorter than count where the copy runs into itself
        out += (repeated * (count // offset + 1))[:count]
    if len(out) != length:
        raise ValueError(f"{len(out)} bytes where {length} are told")
    return bytes(out)


def _elf_bytes(data: bytes, at: int) -> int:
    """Of the object that begins there: up to the end of its last table of headers."""
    programs, sections = struct.unpack_from("<QQ", data, at + 32)
    program_size, num_programs, section_size, num_sections = struct.unpack_from("<4H", data, at + 54)
    return int(max(programs + program_size * num_programs, sections + section_size * num_sections))


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns a number of 7 bits a byte, the lowest first, and where the next byte is."""
    number = shift = 0
    while True:
        number |= (data[at] & 127) << shift
        if data[at] < 128:
            return number, at + 1
        at, shift = at + 1, shift + 7
