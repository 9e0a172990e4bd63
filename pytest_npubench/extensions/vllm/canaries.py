"""The canary kernels of engines/canary_kernels.py in torch, for vLLM's own process: the same programs and sizes.

In that process, because another one beside it would take memory and cores of the same device, and because a session
that is vLLM's must not hang on what else is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytest_npubench.core.clock import perf_counter
from pytest_npubench.engines.canary_kernels import FLOAT_BYTES, KERNELS, NUM_LAUNCHES, sizes
from pytest_npubench.errors import MeasurementError
from pytest_npubench.extensions.vllm.vllm_errors import named_errors


class TorchCanaries:
    """Canaries on a device of torch's. A kernel's data is made on its first call, and stays."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._calls: dict[str, Callable[[], Any]] = {}

    def time(self, kernel: str) -> float:
        """Returns seconds of one call, waited for; of `dispatch` the mean over many. Raises MeasurementError where
        torch cannot run it there."""
        if kernel not in KERNELS:
            raise MeasurementError(f"no canary kernel {kernel!r}; known: {', '.join(KERNELS)}")
        num_calls = NUM_LAUNCHES if kernel == "dispatch" else 1
        with named_errors(f"canary kernel {kernel}"):
            call = self._call(kernel)
            started_s = perf_counter()
            for _ in range(num_calls):
                call()
                self._wait()
            return (perf_counter() - started_s) / num_calls

    def _call(self, kernel: str) -> Callable[[], Any]:
        """Returns the kernel, run once before it is timed for the first time."""
        if kernel not in self._calls:
            call = {"matmul": self._matmul, "copy": self._copy, "dispatch": self._dispatch}[kernel]()
            call()
            self._wait()
            self._calls[kernel] = call
        return self._calls[kernel]

    def _wait(self) -> None:
        if self._device != "cpu":
            import torch

            torch.accelerator.synchronize()

    def _matmul(self) -> Callable[[], Any]:
        import torch

        size = sizes(self._device)
        shape, dtype = (size.matmul_rows,) * 2, getattr(torch, size.matmul_dtype)
        # random, since a constant takes so little power that a lowered power cap would not show
        generator = torch.Generator(self._device).manual_seed(0)
        matrix = torch.empty(shape, dtype=dtype, device=self._device).normal_(generator=generator)
        product = torch.empty_like(matrix)
        return lambda: torch.matmul(matrix, matrix, out=product)

    def _copy(self) -> Callable[[], Any]:
        import torch

        source = torch.zeros(sizes(self._device).copy_bytes // FLOAT_BYTES, device=self._device)
        target = torch.zeros_like(source)
        return lambda: target.copy_(source)

    def _dispatch(self) -> Callable[[], Any]:
        import torch

        few = torch.zeros(8, device=self._device)
        return lambda: few + 1
