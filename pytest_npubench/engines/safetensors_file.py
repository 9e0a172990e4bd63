"""Writes a safetensors file tensor by tensor, without torch: bf16 has no numpy type, and the process that needs the
file may have no torch.

The format (huggingface/safetensors, README): 8 bytes with the header's length, little-endian; a JSON header of dtype,
shape and byte range of each tensor; then their bytes, row-major and little-endian, without gaps.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pytest_npubench.core.documents import json_value
from pytest_npubench.errors import ConfigError

Floats = npt.NDArray[np.float32]
# dtype: its name in the header, its bytes
DTYPES = {"fp32": ("F32", 4), "bf16": ("BF16", 2), "fp16": ("F16", 2)}
ALIGNMENT = 8


def write_safetensors(
    path: Path, shapes: Mapping[str, tuple[int, ...]], make: Callable[[str, tuple[int, ...]], Floats], *, dtype: str
) -> None:
    """make(name, shape) gives a tensor in fp32; it is written in `dtype`. One tensor is in memory at a time."""
    header = _header(shapes, dtype)
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little"))
        file.write(header)
        for name, shape in shapes.items():
            values = make(name, shape)
            assert values.shape == shape, name
            file.write(encoded(values, dtype))


def num_bytes(shapes: Mapping[str, tuple[int, ...]], dtype: str) -> int:
    """Bytes of all tensors together. Raises ConfigError for a dtype the format is not written in."""
    return sum(map(math.prod, shapes.values())) * _format_of(dtype)[1]


def encoded(values: Floats, dtype: str) -> bytes:
    """bf16 is the upper half of fp32, rounded to nearest, ties to even."""
    if dtype == "fp32":
        return values.astype("<f4").tobytes()
    if dtype == "fp16":
        return values.astype("<f2").tobytes()
    bits = values.astype("<f4").view("<u4")
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    halves: npt.NDArray[np.uint16] = (rounded >> np.uint32(16)).astype("<u2")
    return halves.tobytes()


def _header(shapes: Mapping[str, tuple[int, ...]], dtype: str) -> bytes:
    name_of_dtype, bytes_each = _format_of(dtype)
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    start = 0
    for name, shape in shapes.items():
        stop = start + math.prod(shape) * bytes_each
        entries[name] = {"dtype": name_of_dtype, "shape": list(shape), "data_offsets": [start, stop]}
        start = stop
    text = json.dumps(entries, separators=(",", ":")).encode()
    return text + b" " * (-len(text) % ALIGNMENT)


def _format_of(dtype: str) -> tuple[str, int]:
    if dtype not in DTYPES:
        raise ConfigError(f"dtype {dtype!r}; weights are written in {', '.join(DTYPES)}")
    return DTYPES[dtype]


def is_whole(path: Path) -> bool:
    """Whether a file is there, has a header and as many bytes as that says."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            size = path.stat().st_size
            header = json_value(file.read(min(length, size)))
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        return bool(8 + length + max(ends) == size)
    except (OSError, ValueError, TypeError, KeyError, IndexError, AttributeError):
        return False
