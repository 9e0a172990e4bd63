"""CUDA units: one takes any shape (torch eager on a stream), one runs CUDA graphs captured for one shape each.

Weights stay on the device. A run brings the activation there from pinned memory, multiplies and brings the result back
to pinned memory, all on the stream; once the stream is waited for, the result is copied into the arena (T_copy).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from pytest_npubench.core.clock import perf_counter
from pytest_npubench.errors import PartitionError
from pytest_npubench.extensions.pairs.partition.units.arena import SharedArena
from pytest_npubench.extensions.pairs.partition.units.cuda_stream import CUDA_MECHANISMS, CudaStream
from pytest_npubench.extensions.pairs.partition.units.operands import Array
from pytest_npubench.extensions.pairs.partition.units.signals import FLAG


class CudaProduct:
    """One part on a device: calling it puts it on the stream, `deliver` copies the result into the arena."""

    def __init__(self, stream: CudaStream, weight: Array, activation: Array, output: Array) -> None:
        torch, self._stream, self._output = stream.torch, stream, output
        self._host_activation = torch.from_numpy(np.ascontiguousarray(activation)).pin_memory()
        shape = (weight.shape[0], activation.shape[0])
        self._host_result = torch.empty(shape, dtype=torch.float32, pin_memory=True)
        with stream.entered():
            self._weight = torch.from_numpy(np.ascontiguousarray(weight)).to(stream.device)
            self._activation = torch.empty(activation.shape, dtype=torch.float32, device=stream.device)
            self._result = torch.empty(shape, dtype=torch.float32, device=stream.device)
        stream.stream.synchronize()

    def work(self) -> None:
        self._activation.copy_(self._host_activation, non_blocking=True)
        self._stream.torch.mm(self._weight, self._activation.T, out=self._result)
        self._host_result.copy_(self._result, non_blocking=True)

    def __call__(self) -> None:
        with self._stream.entered():
            self.work()

    def deliver(self) -> None:
        np.copyto(self._output, self._host_result.numpy()[:, : self._output.shape[1]])


class CudaUnit:
    """The dynamic unit: torch eager on a stream of its own."""

    zero_copy = False
    mechanisms = CUDA_MECHANISMS

    def __init__(self, torch: Any, device: int, timeout_s: float) -> None:
        self.torch = torch
        self.name = f"{torch.cuda.get_device_name(device)} (cuda:{device}), eager"
        self.copy_s = 0.0
        self._stream = CudaStream(torch, device, timeout_s)
        self.cache_bytes = self._stream.cache_bytes

    def prepare(self, weight: Array, activation: Array, output: Array) -> Callable[[], object]:
        return CudaProduct(self._stream, weight, activation, output)

    def run(self, runs: Sequence[Callable[[], object]], mechanism: str) -> float | None:
        """runs: what `prepare` returned."""
        if not runs:
            return None
        began_s = perf_counter()
        for run in runs:
            run()
        self._stream.tell(mechanism)
        self._stream.wait(mechanism)
        copying_s = perf_counter()
        for run in runs:
            cast(CudaProduct, run).deliver()
        ended_s = perf_counter()
        self.copy_s = ended_s - copying_s
        return ended_s - began_s

    def round_trips_s(self, mechanism: str, num_trips: int) -> tuple[float, ...]:
        return self._stream.round_trips_s(mechanism, num_trips)


class CudaGraphUnit:
    """The static unit: a CUDA graph a key, replayed on a stream of its own. Methods as XlaWorker's; seconds of a key
    are the device's own, between events around its replay, plus copying its result."""

    mechanisms = CUDA_MECHANISMS

    def __init__(self, torch: Any, device: int, timeout_s: float, arena: SharedArena) -> None:
        self._torch, self._arena = torch, arena
        self.name = f"{torch.cuda.get_device_name(device)} (cuda:{device}), CUDA graphs"
        self._stream = CudaStream(torch, device, timeout_s)
        self.cache_bytes = self._stream.cache_bytes
        self._graphs: dict[str, tuple[Any, CudaProduct]] = {}
        self._submitted: list[tuple[str, Any, Any]] = []
        self._mechanism = FLAG
        self.copies_s: tuple[float, ...] = ()

    def build(self, key: str, spec: Mapping[str, Any]) -> float:
        """spec as matmul_kernels.build takes it."""
        rows = slice(spec["first_row"], spec["first_row"] + spec["num_rows"])
        first, padded = spec["first_token"], spec["padded_tokens"]
        product = CudaProduct(
            self._stream,
            self._arena.view(spec["weight"])[rows],
            self._arena.view(spec["activation"])[first : first + padded],
            self._arena.view(spec["output"])[rows, first : first + spec["num_tokens"]],
        )
        began_s = perf_counter()
        product()  # a capture may not allocate the library's workspace
        self._stream.stream.synchronize()
        graph = self._torch.cuda.CUDAGraph()
        with self._torch.cuda.graph(graph, stream=self._stream.stream):
            product.work()
        self._stream.stream.synchronize()
        self._graphs[key] = graph, product
        return perf_counter() - began_s

    def forget(self) -> None:
        self._graphs.clear()

    def arm(self, mechanism: str) -> None:
        """A device is always listening."""

    def submit(self, keys: Sequence[str], *, mechanism: str) -> None:
        if self._submitted:
            raise PartitionError("the static unit was given work before its last was waited for")
        self._mechanism = mechanism
        for key in keys:
            began = self._stream.mark()
            with self._stream.entered():
                self._graphs[key][0].replay()
            self._submitted.append((key, began, self._stream.mark()))
        self._stream.tell(mechanism)

    @property
    def num_done(self) -> int:
        return sum(bool(ended.query()) for _, _, ended in self._submitted)

    def wait(self) -> tuple[float, ...]:
        submitted, self._submitted = self._submitted, []
        self._stream.wait(self._mechanism)
        self.copies_s = tuple(self._deliver(key) for key, _, _ in submitted)
        on_device_s = (began.elapsed_time(ended) / 1e3 for _, began, ended in submitted)
        return tuple(each_s + copy_s for each_s, copy_s in zip(on_device_s, self.copies_s, strict=True))

    def round_trips_s(self, mechanism: str, num_trips: int) -> tuple[float, ...]:
        return self._stream.round_trips_s(mechanism, num_trips)

    def _deliver(self, key: str) -> float:
        began_s = perf_counter()
        self._graphs[key][1].deliver()
        return perf_counter() - began_s
