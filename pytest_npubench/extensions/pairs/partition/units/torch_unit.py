"""The dynamic unit of the host pair: torch on this process's core, one thread, any shape, results written in place."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_npubench.core.clock import perf_counter
from pytest_npubench.errors import DeviceUnavailableError
from pytest_npubench.extensions.pairs.partition.number_formats import GROUP, steps_of
from pytest_npubench.extensions.pairs.partition.units.cores import last_cache_bytes
from pytest_npubench.extensions.pairs.partition.units.operands import PartArrays


class TorchUnit:
    zero_copy = True
    mechanisms: tuple[str, ...] = ()  # it computes in the caller's own thread: nothing to wait for
    copy_s = 0.0

    def __init__(self, core: int) -> None:
        self.name = f"torch on core {core}"
        self.cache_bytes = last_cache_bytes(core)
        self.torch = import_torch()

    def prepare(self, arrays: PartArrays) -> Callable[[], object]:
        """The product is written in place, that of 4-bit weights copied there."""
        torch = self.torch
        activation, out = tensor_of(torch, arrays.activation), tensor_of(torch, arrays.output)
        if arrays.scales is None:
            operands = tensor_of(torch, arrays.weight), activation.T
            return lambda: torch.mm(*operands, out=out)
        steps = torch.from_numpy(steps_of(arrays.weight)).int()
        packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(steps, 1)
        scales = scales_and_zeros(torch, arrays.scales)
        multiply = torch.ops.aten._weight_int4pack_mm_for_cpu
        return lambda: out.copy_(multiply(activation, packed, GROUP, scales).T)

    def run(self, runs: Sequence[Callable[[], object]], mechanism: str) -> float | None:
        """Returns seconds of all, None where there is nothing to do."""
        if not runs:
            return None
        began_s = perf_counter()
        for run in runs:
            run()
        return perf_counter() - began_s

    def round_trips_s(self, mechanism: str, num_trips: int) -> tuple[float, ...]:
        raise AssertionError("nothing waits for a unit that computes in the caller's thread")


def tensor_of(torch: Any, array: NDArray[Any]) -> Any:
    """Returns the array as a tensor in place; uint16 as the bfloat16 that it is."""
    return torch.from_numpy(array).view(torch.bfloat16) if array.dtype == np.uint16 else torch.from_numpy(array)


def scales_and_zeros(torch: Any, scales: NDArray[Any]) -> Any:
    """[rows, groups] -> [groups, rows, 2], as torch's kernels of 4-bit weights take them: (q - 8) * scale + zero"""
    factors = tensor_of(torch, scales).T
    return torch.stack((factors, torch.zeros_like(factors)), dim=-1).contiguous()


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
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False  # sums are in float32
    return torch
