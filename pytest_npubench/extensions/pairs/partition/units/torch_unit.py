"""The dynamic unit of the host pair: torch on this process's core, one thread, any shape, results written in place."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from pytest_npubench.core.clock import perf_counter
from pytest_npubench.errors import DeviceUnavailableError
from pytest_npubench.extensions.pairs.partition.units.cores import last_cache_bytes
from pytest_npubench.extensions.pairs.partition.units.operands import Array


class TorchUnit:
    zero_copy = True
    mechanisms: tuple[str, ...] = ()  # it computes in the caller's own thread: nothing to wait for
    copy_s = 0.0

    def __init__(self, core: int) -> None:
        self.name = f"torch on core {core}"
        self.cache_bytes = last_cache_bytes(core)
        self.torch = import_torch()

    def prepare(self, weight: Array, activation: Array, output: Array) -> Callable[[], object]:
        """weight [rows, cols], activation [tokens, cols] -> output [rows, tokens]"""
        from_numpy = self.torch.from_numpy
        operands = from_numpy(weight), from_numpy(activation).T
        out = from_numpy(output)
        multiply = self.torch.mm
        return lambda: multiply(*operands, out=out)

    def run(self, runs: Sequence[Callable[[], object]], mechanism: str) -> float | None:
        """Seconds of all, None where there is nothing to do."""
        if not runs:
            return None
        began_s = perf_counter()
        for run in runs:
            run()
        return perf_counter() - began_s

    def round_trips_s(self, mechanism: str, num_trips: int) -> tuple[float, ...]:
        raise AssertionError("nothing waits for a unit that computes in the caller's thread")


def import_torch() -> Any:
    """torch with one thread and no gradients; DeviceUnavailableError where it is not installed."""
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        import torch
    except ImportError as error:
        raise DeviceUnavailableError(f"the dynamic unit needs torch (pytest-npubench[cpu]): {error}") from None
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    return torch


def import_torch_with_cuda(num_devices: int = 1) -> Any:
    """torch that sees so many CUDA devices, else DeviceUnavailableError with what it sees."""
    torch = import_torch()
    if not torch.cuda.is_available():
        raise DeviceUnavailableError("torch sees no CUDA device")
    if torch.cuda.device_count() < num_devices:
        raise DeviceUnavailableError(
            f"the pair needs {num_devices} CUDA devices; torch sees {torch.cuda.device_count()}"
        )
    return torch
