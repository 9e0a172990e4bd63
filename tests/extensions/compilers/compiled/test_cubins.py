"""Machine code in a serialised program, against one that is written here by the formats' descriptions."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.extensions.compilers.compiled.cubins import BLOCK, BLOCK_HEADER, SIGNATURE, cubin_bytes, snappy

LITERALS = st.binary(min_size=1, max_size=200)
COPIES = st.tuples(st.integers(1, 3), st.integers(1, 5000), st.integers(1, 64))


def varint(number: int) -> bytes:
    low = bytes([number & 127])
    return low if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)


def literal(data: bytes) -> bytes:
    if len(data) <= 60:
        return bytes([(len(data) - 1) << 2]) + data
    return bytes([62 << 2]) + (len(data) - 1).to_bytes(3, "little") + data


def copy(kind: int, offset: int, count: int) -> bytes:
    if kind == 1:
        return bytes([1 | (count - 4) << 2 | offset >> 8 << 5, offset & 255])
    return bytes([kind | (count - 1) << 2]) + offset.to_bytes(2 if kind == 2 else 4, "little")


@given(first=LITERALS, parts=st.lists(st.one_of(LITERALS, COPIES), max_size=30))
def test_snappy_reads_literals_and_copies_of_each_width(
    first: bytes, parts: list[bytes | tuple[int, int, int]]
) -> None:
    out, packed = first, literal(first)
    for part in parts:
        if isinstance(part, bytes):
            out, packed = out + part, packed + literal(part)
            continue
        kind, offset, count = part
        offset = min(offset, len(out), 2047 if kind == 1 else 65535)
        count = min(max(count, 4), 11) if kind == 1 else count
        packed += copy(kind, offset, count)
        for _ in range(count):
            out += out[-offset : len(out) - offset + 1]
    assert snappy(varint(len(out)) + packed) == out


@pytest.mark.parametrize("data", [b"\x05" + copy(2, 1, 4), b"\x05" + literal(b"a"), b"\x80"])
def test_what_is_not_snappy_is_refused(data: bytes) -> None:
    with pytest.raises((ValueError, IndexError)):
        snappy(data)


def elf(sections: int) -> bytes:
    """An ELF-64 object of a header, a program header and so many section headers."""
    head = (
        b"\x7fELF\x02\x01\x01"
        + bytes(9)
        + struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 64, 120, 0, 64, 56, 1, 64, sections, 0)
    )
    return head + bytes(56 + 64 * sections)


def program(records: bytes, compression: bytes = b"s") -> bytes:
    """A Riegeli file of one chunk of records, in a message with something before and behind it."""
    values = varint(len(records)) + varint(len(records)) + literal(records)
    sizes = varint(2) + varint(2) + literal(b"\x01\x01")
    chunk = compression + varint(len(sizes)) + sizes + values
    heads = [struct.pack("<QQQ", 0, size, 0) for size in (0, len(chunk))]
    data = heads[0] + b"s" + bytes(15) + heads[1] + b"r" + bytes(15) + chunk
    room = BLOCK - BLOCK_HEADER
    blocks = [data[at : at + room] for at in range(0, len(data), room)]
    headers = [SIGNATURE + bytes(16), *[bytes(BLOCK_HEADER)] * (len(blocks) - 1)]
    return b"before" + b"".join(head + block for head, block in zip(headers, blocks, strict=True)) + b"behind"


@pytest.mark.parametrize("padding", [0, 3 * BLOCK])
def test_all_objects_are_counted_over_blocks(padding: int) -> None:
    assert len(elf(3)) == 64 + 56 + 3 * 64
    records = b"ptx" + elf(3) + bytes(padding) + elf(20)
    assert cubin_bytes(program(records)) == len(elf(3)) + len(elf(20))


@pytest.mark.parametrize("written", [b"", b"another format", program(b"no object"), program(elf(1), b"z")])
def test_another_form_tells_nothing(written: bytes) -> None:
    assert cubin_bytes(written) is None
