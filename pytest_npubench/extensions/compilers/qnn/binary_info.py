"""What a context binary says of the graph in it: on-chip memory (VTCM), what spills from it, constants, inputs.

Read by Qualcomm's own libQnnSystem, which onnxruntime-qnn carries, through its C interface. Structures are those of
QAIRT's public headers System/QnnSystemContext.h (binary info and graph info, version 3) and HTP/QnnHtpSystemContext.h
(graph blob info, versions 1 and 2, one behind the other); of any other version nothing is read.
The library does not look at what it is given: only what the compiler has just written is safe with it.

Worked example: one layer of llama-3.2-1b, a prompt of 128 tokens in fp16: 4 MiB of VTCM, 8.9 MB spilled, 121.9 MB of
constants and 1.3 MB of inputs and outputs (2 x 128 x 2048 + 2 x 8 x 128 x 64 elements of 2 bytes).
"""

from __future__ import annotations

import ctypes as c
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LIBRARY = "libQnnSystem.so"
KNOWN_API = 1  # major version of the system interface
KNOWN = 3  # version of binary info and of graph info
BLOB = struct.Struct("<I4xQI4x16xI4xQQI4xQQQQQ")
"""Of version 1: version, spill-fill bytes, VTCM bytes. Of version 2: version, key and value tiles, whether inputs and
outputs may share memory, their bytes, bytes of operators' data, constants, tensors in DRAM and shared weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphMemory:
    """Bytes of one graph. spill_bytes: what does not stay in VTCM while it runs. dram_tensor_bytes: tensors that never
    are in VTCM as a whole. operator_bytes: what operators bring beside constants."""

    vtcm_bytes: int
    spill_bytes: int
    constant_bytes: int
    dram_tensor_bytes: int
    operator_bytes: int
    io_bytes: int


Version = c.c_uint32 * 3


class _Interface(c.Structure):
    _fields_ = (
        ("backend_id", c.c_uint32),
        ("name", c.c_char_p),
        ("version", Version),
        ("create", c.CFUNCTYPE(c.c_uint64, c.POINTER(c.c_void_p))),
        ("info", c.CFUNCTYPE(c.c_uint64, c.c_void_p, c.c_void_p, c.c_uint64, c.POINTER(c.c_void_p), c.c_void_p)),
        ("metadata", c.c_void_p),
        ("free", c.CFUNCTYPE(c.c_uint64, c.c_void_p)),
    )


class _Binary(c.Structure):
    _fields_ = (
        ("version", c.c_uint64),
        ("backend_id", c.c_uint32),
        ("build", c.c_char_p),
        ("versions", c.c_uint32 * 6),
        ("soc", c.c_char_p),
        ("blob_version", Version),
        ("blob_size", c.c_uint64),
        ("num_tensors", c.c_uint32),
        ("tensors", c.c_void_p),
        ("num_graphs", c.c_uint32),
        ("graphs", c.c_void_p),
    )


class _Graph(c.Structure):
    _fields_ = (
        ("version", c.c_uint64),
        ("name", c.c_char_p),
        ("num_inputs", c.c_uint32),
        ("inputs", c.c_void_p),
        ("num_outputs", c.c_uint32),
        ("outputs", c.c_void_p),
        ("num_updateable", c.c_uint32),
        ("updateable", c.c_void_p),
        ("blob_size", c.c_uint32),
        ("blob", c.c_void_p),
    )


def graph_memory(binary: Path, folder: Path) -> GraphMemory | None:
    """Of the one graph in a context binary, read with the library in `folder`. None where library, file or versions are
    others than are known, or the binary has several graphs."""
    interface = _interface(folder / LIBRARY)
    if interface is None or not binary.is_file() or not binary.stat().st_size:
        return None
    with binary.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapped:
        content = (c.c_char * len(mapped)).from_buffer(mapped)
        handle, info = c.c_void_p(), c.c_void_p()
        try:
            if interface.create(c.byref(handle)):
                return None
            size = c.c_uint64()
            if interface.info(handle, c.addressof(content), len(mapped), c.byref(info), c.addressof(size)) or not info:
                return None
            return _of(c.cast(info, c.POINTER(_Binary)).contents)
        finally:
            if handle:
                interface.free(handle)
            del content  # or the map cannot be closed


def parse_blob(blob: bytes) -> GraphMemory | None:
    """None where it is not of versions 1 and 2."""
    if len(blob) < BLOB.size:
        return None
    first, spill, vtcm, second, _, _, _, io, operators, constants, dram, _ = BLOB.unpack_from(blob)
    if (first, second) != (1, 2):
        return None
    return GraphMemory(
        vtcm_bytes=vtcm,
        spill_bytes=spill,
        constant_bytes=constants,
        dram_tensor_bytes=dram,
        operator_bytes=operators,
        io_bytes=io,
    )


def _of(binary: _Binary) -> GraphMemory | None:
    if binary.version & 0xFFFFFFFF != KNOWN or binary.num_graphs != 1:
        return None
    graph = c.cast(binary.graphs, c.POINTER(_Graph)).contents
    if graph.version & 0xFFFFFFFF != KNOWN or not graph.blob:
        return None
    return parse_blob(c.string_at(graph.blob, graph.blob_size))


def _interface(library: Path) -> Any:
    """Returns the system interface; None where there is none of a known version."""
    try:
        providers = c.CDLL(str(library)).QnnSystemInterface_getProviders
    except (OSError, AttributeError):
        return None
    interfaces, number = c.POINTER(c.POINTER(_Interface))(), c.c_uint32()
    if providers(c.byref(interfaces), c.byref(number)) or not number.value:
        return None
    interface = interfaces[0].contents
    return interface if interface.version[0] == KNOWN_API else None
