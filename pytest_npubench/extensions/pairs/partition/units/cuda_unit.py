"""CUDA units: one takes any shape (torch eager on a stream), one runs CUDA graphs captured for one shape each.

Weights stay on the device. A run brings the activation there from pinned memory, multiplies and brings the result back
to pinned memory, all on the stream; once the stream is waited for, the result is copied into the arena (T_copy). Of
units that share a device, activation and result stay there: who reads the result calls `fetch` first. There a decoder
layer's operators read and write the same tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from pytest_npubench.core.clock import perf_counter
from pytest_npubench.errors import PartitionError
from pytest_npubench.extensions.pairs.partition.number_formats import GROUP
from pytest_npubench.extensions.pairs.partition.units.arena import SharedArena
from pytest_npubench.extensions.pairs.partition.units.cuda_stream import CUDA_MECHANISMS, CudaStream
from pytest_npubench.extensions.pairs.partition.units.operands import PartArrays, part_arrays
from pytest_npubench.extensions.pairs.partition.units.signals import FLAG
from pytest_npubench.extensions.pairs.partition.units.torch_unit import scales_and_zeros, tensor_of

INNER_K_TILES = 8  # how torch's kernel of 4-bit weights has them in memory: 128 columns at a time


class CudaProduct:
    """One part on a device: calling it puts it on the stream, `deliver` copies the result into the arena, or notes the
    part among the `unfetched` where its result stays on the device."""

    def __init__(self, stream: CudaStream, arrays: PartArrays, unfetched: Unfetched | None = None) -> None:
        torch, self._stream, self._unfetched = stream.torch, stream, unfetched
        self._output = tensor_of(torch, arrays.output)
        self._host_activation = tensor_of(torch, np.ascontiguousarray(arrays.activation)).pin_memory()
        dtype, shape = self._output.dtype, (arrays.weight.shape[0], arrays.activation.shape[0])
        self._host_result = torch.empty(shape, dtype=dtype, pin_memory=True)
        shared: Callable[[NDArray[Any]], Any] = (lambda _: None) if unfetched is None else unfetched.shared
        activation, self._shared = shared(arrays.activation), shared(arrays.output)
        with stream.entered():
            self._weight = tensor_of(torch, np.ascontiguousarray(arrays.weight)).to(stream.device)
            self._scales = None
            if arrays.scales is not None:
                self._weight = torch.ops.aten._convert_weight_to_int4pack(self._weight, INNER_K_TILES)
                self._scales = scales_and_zeros(torch, arrays.scales).to(stream.device)
            self._activation = self._host_activation.to(stream.device) if activation is None else activation
            is_whole = self._shared is not None and self._shared.shape == shape
            self._result: Any = self._shared if is_whole else torch.empty(shape, dtype=dtype, device=stream.device)
        stream.stream.synchronize()

    def work(self) -> None:
        torch = self._stream.torch
        if self._unfetched is None:
            self._activation.copy_(self._host_activation, non_blocking=True)
        if self._scales is None:
            torch.mm(self._weight, self._activation.T, out=self._result)
        else:
            product = torch.ops.aten._weight_int4pack_mm(self._activation, self._weight, GROUP, self._scales)
            self._result.copy_(product.T)
        if self._shared is not None and self._shared is not self._result:
            self._shared.copy_(self._result[:, : self._shared.shape[1]])
        if self._unfetched is None:
            self._host_result.copy_(self._result, non_blocking=True)

    def __call__(self) -> None:
        with self._stream.entered():
            self.work()

    def deliver(self) -> None:
        if self._unfetched is None:
            self._output.copy_(self._host_result[:, : self._output.shape[1]])
        else:
            self._unfetched.pop(self, None)
            self._unfetched[self] = None

    def fetch(self) -> None:
        """Copies the result into the arena."""
        with self._stream.entered():
            self._output.copy_(self._result[:, : self._output.shape[1]])
        self._stream.stream.synchronize()

    def spoil(self) -> None:
        """Leaves NaN on the device, so that what the next run leaves out shows."""
        with self._stream.entered():
            self._result.fill_(float("nan"))
        self._stream.stream.synchronize()


class Unfetched(dict[CudaProduct, None]):
    """Parts whose results are on the device only, those that ran last at the end; and the arrays of the arena that a
    decoder layer has there as tensors, by the addresses at which they begin."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors: dict[int, tuple[NDArray[Any], Any]] = {}

    def shared(self, part: NDArray[Any]) -> Any:
        """Returns what the device has of a part of an array, None where it has nothing of it."""
        for start, (array, tensor) in self.tensors.items():
            if 0 <= (offset := part.ctypes.data - start) < array.nbytes:
                steps = [step // part.itemsize for step in part.strides]
                return tensor.as_strided(part.shape, steps, offset // part.itemsize)
        return None


class CudaUnit:
    """The dynamic unit: torch eager on a stream of its own. unfetched: where results that stay on the device are noted,
    None: they do not stay."""

    zero_copy = False
    mechanisms = CUDA_MECHANISMS

    def __init__(
        self,
        torch: Any,
        device: int,
        timeout_s: float,
        stream: Any = None,
        share: str = "",
        unfetched: Unfetched | None = None,
    ) -> None:
        """share: in words what of the device the stream has."""
        self.torch = torch
        self.name = f"{torch.cuda.get_device_name(device)} (cuda:{device}{share}), eager"
        self.copy_s = 0.0
        self._stream, self.unfetched = CudaStream(torch, device, timeout_s, stream), unfetched
        self.cache_bytes = self._stream.cache_bytes

    def prepare(self, arrays: PartArrays) -> Callable[[], object]:
        return CudaProduct(self._stream, arrays, self.unfetched)

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

    def fetch(self) -> None:
        """Brings what stayed on the device into the arena, of both units."""
        products = tuple(self.unfetched or ())
        for product in products:
            product.fetch()
        for product in products:  # only now: they may have parts of one tensor
            product.spoil()
        (self.unfetched or {}).clear()

    def tensor(self, array: NDArray[Any]) -> Any:
        """Returns the tensor that stands for an array of the arena on the device that both units share."""
        assert self.unfetched is not None
        if array.ctypes.data not in self.unfetched.tensors:
            with self._stream.entered():
                tensor = tensor_of(self.torch, array).to(self._stream.device, copy=True)
            self.unfetched.tensors[array.ctypes.data] = array, tensor
        return self.unfetched.tensors[array.ctypes.data][1]

    @contextmanager
    def steps(self, before: CudaGraphUnit) -> Iterator[None]:
        """A context for torch's work on this unit, behind which the other unit's next work comes."""
        with self._stream.entered():
            yield
        before.follow(self._stream)

    def finish(self) -> None:
        self._stream.stream.synchronize()

    def round_trips_s(self, mechanism: str, num_trips: int) -> tuple[float, ...]:
        return self._stream.round_trips_s(mechanism, num_trips)


class CudaGraphUnit:
    """The static unit: a CUDA graph a key, replayed on a stream of its own. Methods as XlaWorker's; seconds of a key
    are the device's own, between events around its replay, plus copying its result."""

    mechanisms = CUDA_MECHANISMS

    def __init__(
        self,
        torch: Any,
        device: int,
        timeout_s: float,
        arena: SharedArena,
        stream: Any = None,
        share: str = "",
        unfetched: Unfetched | None = None,
    ) -> None:
        """share, unfetched: as CudaUnit's."""
        self._torch, self._arena, self._unfetched = torch, arena, unfetched
        self.name = f"{torch.cuda.get_device_name(device)} (cuda:{device}{share}), CUDA graphs"
        self._stream = CudaStream(torch, device, timeout_s, stream)
        self.cache_bytes = self._stream.cache_bytes
        self._graphs: dict[str, tuple[Any, CudaProduct]] = {}
        self._submitted: list[tuple[str, Any, Any]] = []
        self._mechanism = FLAG
        self.copies_s: tuple[float, ...] = ()
        ones = np.ones((8, 8), np.float32)  # libraries start here, and not in the time of the first key
        self._captured(CudaProduct(self._stream, PartArrays(weight=ones, activation=ones, output=ones.copy())))

    def build(self, key: str, spec: Mapping[str, Any]) -> float:
        """spec as matmul_kernels.build takes it."""
        arrays = part_arrays(self._arena, spec["operands"], spec["part"])
        product = CudaProduct(self._stream, arrays, self._unfetched)
        began_s = perf_counter()
        self._graphs[key] = self._captured(product), product
        return perf_counter() - began_s

    def _captured(self, product: CudaProduct) -> Any:
        product()  # a capture may not allocate the library's workspace
        self._stream.stream.synchronize()
        graph = self._torch.cuda.CUDAGraph()
        with self._torch.cuda.graph(graph, stream=self._stream.stream):
            product.work()
        self._stream.stream.synchronize()
        return graph

    def forget(self) -> None:
        self._graphs.clear()

    def follow(self, stream: CudaStream) -> None:
        """What is submitted from now on runs behind what is on another stream of the device."""
        self._stream.stream.wait_stream(stream.stream)

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
