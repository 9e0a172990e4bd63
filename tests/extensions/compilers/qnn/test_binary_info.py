"""What a context binary says of its graph's memory: from bytes whose fields are known, and from real binaries."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from pytest_npubench.extensions.compilers.qnn.binary_info import GraphMemory, graph_memory, parse_blob

MIB = 2**20
# version 1: spill-fill, VTCM, level, compression, threads; version 2: tiles, sharing, inputs and outputs, operators'
# data, constants, tensors in DRAM, shared weights
FIELDS = (1, 0, 37_355_520, 4 * MIB, 0, 0, 0, 2, 0, 256, 64, 0, 5_242_880, 2_631_168, 122_843_136, 16_777_728, 0)
BLOB = struct.pack("<IIQIIQQIIQQQQQQQQ", *FIELDS)


def test_the_fields_are_those_of_the_headers() -> None:
    assert parse_blob(BLOB) == GraphMemory(
        vtcm_bytes=4 * MIB,
        spill_bytes=37_355_520,
        constant_bytes=122_843_136,
        dram_tensor_bytes=16_777_728,
        operator_bytes=2_631_168,
        io_bytes=5_242_880,
    )
    assert parse_blob(BLOB + bytes(8)) == parse_blob(BLOB), "later versions may add fields"


@pytest.mark.parametrize("place", [0, 7])
def test_another_version_is_not_read(place: int) -> None:
    fields = list(FIELDS)
    fields[place] = 9
    assert parse_blob(struct.pack("<IIQIIQQIIQQQQQQQQ", *fields)) is None


def test_a_short_blob_and_a_missing_library_tell_nothing(tmp_path: Path) -> None:
    assert parse_blob(BLOB[:-1]) is None
    assert parse_blob(b"") is None
    (tmp_path / "context.bin").write_bytes(BLOB)
    assert graph_memory(tmp_path / "context.bin", tmp_path) is None
    (tmp_path / "libQnnSystem.so").write_bytes(b"no library")
    assert graph_memory(tmp_path / "context.bin", tmp_path) is None


@pytest.fixture
def library() -> Path:
    qnn = pytest.importorskip("onnxruntime_qnn", reason="pip install pytest-npubench[qualcomm-compiler]")
    return Path(qnn.get_library_path()).parent


def test_a_binary_that_is_none_tells_nothing(library: Path, tmp_path: Path) -> None:
    path = tmp_path / "context.bin"
    path.write_bytes(b"")
    assert graph_memory(path, library) is None
    assert graph_memory(tmp_path / "nowhere.bin", library) is None
