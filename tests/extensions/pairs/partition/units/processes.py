"""Processes and pairs of the tests."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_npubench.errors import DeviceUnavailableError
from pytest_npubench.extensions.pairs.partition.matmul import GPU, NPU, Matmul, Part, Split
from pytest_npubench.extensions.pairs.partition.units import open_pair
from pytest_npubench.extensions.pairs.partition.units.host_pair import HostPair

STANDARD_SIZES = (4, 16)


def opened(**keywords: Any) -> HostPair:
    """The host pair; the test skips with the reason where this machine has none."""
    pytest.importorskip("jax")
    pytest.importorskip("torch")
    try:
        pair = open_pair("host", standard_sizes=STANDARD_SIZES, **keywords)
    except DeviceUnavailableError as error:
        pytest.skip(str(error))
    assert isinstance(pair, HostPair)
    return pair


def runs(pid: int) -> bool:
    """Whether the process is there and not merely waiting to be reaped by its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def eventually(holds: Callable[[], bool], within_s: float = 20.0) -> bool:
    until_s = time.monotonic() + within_s
    while not holds() and time.monotonic() < until_s:
        time.sleep(0.02)
    return holds()


def rows_shared(matmul: Matmul, gpu_rows: int, padded_tokens: int | None = None) -> Split:
    """The first rows on the GPU, the others on the NPU with its tokens padded."""
    shares = [
        (GPU, 0, gpu_rows, matmul.tokens),
        (NPU, gpu_rows, matmul.rows - gpu_rows, padded_tokens or matmul.tokens),
    ]
    parts = tuple(
        Part(unit=unit, first_row=first, num_rows=num, first_token=0, num_tokens=matmul.tokens, padded_tokens=padded)
        for unit, first, num, padded in shares
        if num
    )
    return Split(strategy=f"rows_{gpu_rows}_of_{matmul.rows}", parts=parts)
