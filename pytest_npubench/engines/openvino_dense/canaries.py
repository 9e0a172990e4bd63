"""The canary kernels of engines/canary_kernels.py as OpenVINO models: a stack's compute, memory, launches.

    matmul     a square product of random matrices, the weight a constant of the model
    copy       one buffer into another, larger than the caches; each value is doubled, since a plugin may drop a graph
               that only passes its input on
    dispatch   an addition of eight numbers, waited for each time

Sizes are fixed for each device, as there. Worked number: matmul of 512 in fp32 is 2.7e8 operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import openvino as ov
from openvino import opset13 as op

from pytest_npubench.core.clock import perf_counter
from pytest_npubench.engines.canary_kernels import FLOAT_BYTES, HOST_SIZES, NUM_LAUNCHES, Sizes
from pytest_npubench.engines.protocol import Compiler

DEVICE_SIZES = Sizes(matmul_rows=2048, matmul_dtype="float16", copy_bytes=256 * 2**20)


class OpenVinoCanaries:
    """The kernels on one device of OpenVINO."""

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler
        self._requests: dict[str, Any] = {}
        self._sizes = HOST_SIZES if tuple(compiler.devices) == ("CPU",) else DEVICE_SIZES

    def load(self, kernel: str) -> None:
        """Compile ahead of time and fill the inputs; what is there already stays."""
        if kernel not in self._requests:
            build: Callable[[], Any] = {"matmul": self._matmul, "copy": self._copy, "dispatch": _dispatch}[kernel]
            compiled: Any = self._compiler.compile(f"canary-{kernel}", build)
            request = compiled.create_infer_request()
            values = request.get_input_tensor(0).data
            values[...] = _random(values.shape) if kernel == "matmul" else 0
            self._requests[kernel] = request

    def time(self, kernel: str) -> float:
        """Returns seconds of one call of a loaded kernel, waited for; of `dispatch` the mean over many."""
        request, num_calls = self._requests[kernel], NUM_LAUNCHES if kernel == "dispatch" else 1
        started_s = perf_counter()
        for _ in range(num_calls):
            request.start_async()
            request.wait()
        return (perf_counter() - started_s) / num_calls

    def _matmul(self) -> Any:
        rows, dtype = self._sizes.matmul_rows, np.dtype(self._sizes.matmul_dtype)
        x = op.parameter([rows, rows], ov.Type(dtype))
        return _model(op.matmul(x, op.constant(_random((rows, rows)).astype(dtype)), False, False), x)

    def _copy(self) -> Any:
        x = op.parameter([self._sizes.copy_bytes // FLOAT_BYTES], ov.Type.f32)
        return _model(op.multiply(x, op.constant(np.array(2, np.float32))), x)


def _random(dims: tuple[int, ...]) -> Any:
    """A constant takes so little power that a lowered power cap would not show."""
    return np.random.default_rng(0).standard_normal(dims, np.float32)


def _dispatch() -> Any:
    x = op.parameter([8], ov.Type.f32)
    return _model(op.add(x, op.constant(np.array(1, np.float32))), x)


def _model(result: Any, parameter: Any) -> Any:
    return ov.Model([result], [parameter], "canary")
