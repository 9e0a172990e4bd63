"""Two OpenVINO devices as a pair of units: static graphs on one, one graph of dynamic shape on the other.

# M = rows, K = cols, S = tokens
Both graphs compute weight [M, K] x tokens [S, K]^T = [M, S], with both as inputs: rows of the weight and tokens then
are slices of shared arrays that no graph copies, and a static graph serves every place that has its shape. A result
goes straight into the shared [M, S] buffer where a part has all tokens unpadded; elsewhere it is copied there, which is
copy_s. Whether a device reads host memory in place or its driver copies it is the driver's to decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import openvino as ov
from numpy.typing import NDArray
from openvino import opset13 as op

from pytest_npubench.core.clock import perf_counter
from pytest_npubench.errors import DeviceUnavailableError, MeasurementError, PartitionError
from pytest_npubench.extensions.pairs.partition.matmul import GPU, NPU, ROLES, Matmul, Part, Split, check_split
from pytest_npubench.extensions.pairs.partition.number_formats import FP32
from pytest_npubench.extensions.pairs.partition.unit import SplitTiming, UnitFacts
from pytest_npubench.extensions.pairs.partition.units.cores import last_cache_bytes
from pytest_npubench.extensions.pairs.partition.units.openvino_requests import (
    MECHANISMS,
    Requests,
    Work,
    check_mechanism,
    memory_for,
    words,
)

Floats = NDArray[np.float32]
Shape = tuple[int, int, int]
STREAM_COLS = 1024
NUM_STREAMED = 5
EVICTED = 1.25  # of the last cache


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenVinoOperands:
    """weight [rows, cols] ~ N(0, 1/cols), tokens [tokens + padding, cols] ~ N(0, 1) and zeros behind them, and the
    result [rows, tokens]. Tokens lie one after the other, so that a part's are one run of memory."""

    weight: Floats
    tokens: Floats
    result: Floats


class OpenVinoOperandStore:
    """Operators of one name and shape share their weight, whatever their tokens."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._weights: dict[tuple[str, int, int], Floats] = {}
        self._operands: dict[Matmul, OpenVinoOperands] = {}

    def __contains__(self, matmul: Matmul) -> bool:
        return matmul in self._operands

    def __getitem__(self, matmul: Matmul) -> OpenVinoOperands:
        return self._operands[matmul]

    def make(self, matmul: Matmul, num_tokens: int) -> bool:
        """Make room for num_tokens with the padding. True where arrays are new: what was bound to older ones is void.

        Raises MeasurementError where memory is short.
        """
        operand = self._operands.get(matmul)
        if operand is not None and len(operand.tokens) >= num_tokens:
            return False
        with memory_for(f"{matmul.name} [{matmul.rows}, {matmul.cols}] x {num_tokens} tokens"):
            tokens = np.zeros((num_tokens, matmul.cols), np.float32)
            tokens[: matmul.tokens] = self._normal(matmul.tokens, matmul.cols)
            result = np.full((matmul.rows, matmul.tokens), np.nan, np.float32)
            self._operands[matmul] = OpenVinoOperands(weight=self._weight(matmul), tokens=tokens, result=result)
        return True

    def clear(self) -> None:
        self._weights.clear()
        self._operands.clear()

    def _weight(self, matmul: Matmul) -> Floats:
        key = matmul.name, matmul.rows, matmul.cols
        if key not in self._weights:
            self._weights[key] = self._normal(matmul.rows, matmul.cols) / np.float32(matmul.cols**0.5)
        return self._weights[key]

    def _normal(self, *dims: int) -> Floats:
        return np.random.default_rng((self._seed, *dims)).standard_normal(dims, np.float32)


class OpenVinoPair:
    """See the module. Raises DeviceUnavailableError where a device is not there, with those that are."""

    def __init__(self, npu: str, gpu: str, *, standard_sizes: tuple[int, ...], tile: int, seed: int) -> None:
        self._core = ov.Core()
        self._devices = {NPU: npu, GPU: gpu}
        for device in (npu, gpu):
            _check_present(device, self._core.available_devices)
        self.npu = UnitFacts(
            name=self._title(npu),
            role=NPU,
            tile=tile,
            standard_sizes=standard_sizes,
            zero_copy=True,
        )
        self.gpu = UnitFacts(name=self._title(gpu), role=GPU, zero_copy=True)
        self._operands = OpenVinoOperandStore(seed)
        self._requests = Requests({NPU: self.npu.name, GPU: self.gpu.name})
        self._graphs: dict[Shape, Any] = {}
        self._work: dict[tuple[Matmul, Part, bool], Work] = {}
        self._signals: dict[tuple[str, bool], Work] = {}
        self._evicting: dict[str, list[Work]] = {}
        self._dynamic = self._compile(GPU, _matmul(-1, -1, -1))

    @property
    def mechanisms(self) -> tuple[str, ...]:
        return MECHANISMS

    def load(self, matmul: Matmul, splits: Sequence[Split]) -> Mapping[Shape, float]:
        """See UnitPair. Every part is run once, outside of any timing. Raises PartitionError for other than fp32."""
        if matmul.dtype != FP32:
            raise PartitionError(f"{matmul.name} in {matmul.dtype}: OpenVINO's pairs multiply in {FP32}")
        for split in splits:
            check_split(matmul, split)
        ends = [part.first_token + _num_tokens(part) for split in splits for part in split.parts]
        if self._operands.make(matmul, max([matmul.tokens, *ends])):
            self._work = {key: work for key, work in self._work.items() if key[0] != matmul}
        compile_s: dict[Shape, float] = {}
        for part in _unique(part for split in splits if not split.prepares_online for part in split.parts):
            shape = _graph_shape(matmul, part)
            if part.unit == NPU and shape not in self._graphs:
                started_s = perf_counter()
                self._graphs[shape] = self._compile(NPU, _matmul(*shape))
                compile_s[shape] = perf_counter() - started_s
            self._requests.run_once(part.unit, self._bound(matmul, part, calls_back=False).request)
        return compile_s

    def run(self, matmul: Matmul, split: Split, *, mechanism: str | None = None) -> SplitTiming:
        """See UnitPair. Raises PartitionError for a split that was not loaded, or an unknown mechanism."""
        mechanism = check_mechanism(mechanism or MECHANISMS[0])
        if matmul not in self._operands:
            raise PartitionError(f"{matmul.name} was not loaded: call load() with its splits first")
        started_s = perf_counter()
        work = {unit: self._works(matmul, split, unit, mechanism) for unit in split.units}
        if split.prepares_online:
            compile_s = perf_counter() - started_s
        else:  # binding tensors is no part of a run
            compile_s, started_s = 0.0, perf_counter()
        ran = self._requests.run(work, mechanism)
        total_s = perf_counter() - started_s
        return SplitTiming(
            total_s=total_s,
            gpu_s=ran.busy_s.get(GPU),
            npu_s=ran.busy_s.get(NPU),
            sync_s=max(0.0, total_s - compile_s - max(ran.busy_s.values())),
            copy_s=ran.copy_s.get(NPU, 0.0),
            compile_s=compile_s,
        )

    def output(self, matmul: Matmul) -> Floats:
        return self._operands[matmul].result

    def spoil_output(self, matmul: Matmul) -> None:
        self._operands[matmul].result[...] = np.nan

    def operands(self, matmul: Matmul) -> tuple[Floats, Floats]:
        """Returns the weight [rows, cols] and the activation [cols, tokens] of a loaded operator."""
        operand = self._operands[matmul]
        return operand.weight, operand.tokens[: matmul.tokens].T

    def round_trips_s(self, mechanism: str, num_trips: int) -> tuple[float, ...]:
        """A trip is a request of eight numbers on the static unit, then one on the other, each waited for."""
        calls_back = check_mechanism(mechanism) == "callback"
        signals = {unit: [self._signal(unit, calls_back)] for unit in ROLES}
        times_s = []
        for _ in range(num_trips):
            started_s = perf_counter()
            for unit in (NPU, GPU):
                self._requests.run({unit: signals[unit]}, mechanism)
            times_s.append(perf_counter() - started_s)
        return tuple(times_s)

    def stream_bytes_per_s(self, units: Sequence[str], num_bytes: int) -> Mapping[str, float]:
        """See UnitPair. The median of several rounds, each unit's time from the common start to its polled end: the
        latencies that OpenVINO measures would hide that one unit waited for the other."""
        rows = max(1, num_bytes // (4 * STREAM_COLS))
        work = self._streams(units, rows)
        rounds = [self._requests.run(work, "polling").ended_s for _ in range(1 + NUM_STREAMED)]
        return {unit: rows * STREAM_COLS * 4 / median(one[unit] for one in rounds[1:]) for unit in units}

    def evict(self) -> None:
        """Both devices read a matrix that is larger than the last cache of the processors."""
        if not self._evicting:
            self._evicting = self._streams(ROLES, int(EVICTED * last_cache_bytes(0)) // (4 * STREAM_COLS))
        self._requests.run(self._evicting, "polling")

    def unload(self) -> None:
        self._evicting.clear()
        self._work.clear()
        self._operands.clear()
        self._graphs.clear()

    def close(self) -> None:
        """Holds nothing that outlives this object: no process, no shared memory of the system's."""
        self.unload()
        self._signals.clear()

    # -- what a run needs

    def _works(self, matmul: Matmul, split: Split, unit: str, mechanism: str) -> list[Work]:
        calls_back, parts = mechanism == "callback", split.of(unit)
        if unit == NPU and split.prepares_online:
            graphs = [self._compile(NPU, _matmul(*_graph_shape(matmul, part))) for part in parts]
            return [self._bind(matmul, part, graph, calls_back) for part, graph in zip(parts, graphs, strict=True)]
        return [self._bound(matmul, part, calls_back=calls_back) for part in parts]

    def _bound(self, matmul: Matmul, part: Part, *, calls_back: bool) -> Work:
        key = matmul, part, calls_back
        if key not in self._work:
            graph = self._graphs.get(_graph_shape(matmul, part)) if part.unit == NPU else self._dynamic
            if graph is None:
                raise PartitionError(f"{matmul.name}: {part} was not loaded: call load() with its split first")
            self._work[key] = self._bind(matmul, part, graph, calls_back)
        return self._work[key]

    def _bind(self, matmul: Matmul, part: Part, graph: Any, calls_back: bool) -> Work:
        operands, num_tokens = self._operands[matmul], _num_tokens(part)
        rows = slice(part.first_row, part.first_row + part.num_rows)
        tokens = operands.tokens[part.first_token : part.first_token + num_tokens]
        target = operands.result[rows, part.first_token : part.first_token + part.num_tokens]
        direct = part.num_tokens == num_tokens == matmul.tokens
        written = target if direct else np.empty((part.num_rows, num_tokens), np.float32)
        arrays = operands.weight[rows], tokens, written
        weight, activation, result = tensors = tuple(ov.Tensor(array, shared_memory=True) for array in arrays)
        request = self._requests.make(part.unit, graph, calls_back=calls_back)
        request.set_input_tensor(0, weight)
        request.set_input_tensor(1, activation)
        request.set_output_tensor(0, result)
        copied = None if direct else (target, written[:, : part.num_tokens])
        return Work(request=request, tensors=tensors, copied=copied)

    def _streams(self, units: Iterable[str], rows: int) -> dict[str, list[Work]]:
        """Returns a product of each unit with a matrix of its own, [rows, STREAM_COLS] x 1 token."""
        work = {}
        for unit in units:
            request = self._requests.make(unit, self._compile(unit, _matmul(rows, STREAM_COLS, 1)), calls_back=False)
            with memory_for(f"{4 * rows * STREAM_COLS} bytes to stream on {self._devices[unit]}"):
                for index in range(2):
                    request.get_input_tensor(index).data[...] = 1
            work[unit] = [Work(request=request)]
        return work

    def _signal(self, unit: str, calls_back: bool) -> Work:
        if (unit, calls_back) not in self._signals:
            request = self._requests.make(unit, self._compile(unit, _matmul(1, 8, 1)), calls_back=calls_back)
            self._requests.run_once(unit, request)
            self._signals[unit, calls_back] = Work(request=request)
        return self._signals[unit, calls_back]

    # -- devices

    def _compile(self, unit: str, model: Any) -> Any:
        """Compiles in the precision of the model; where the CPU is both units, with one thread each."""
        device = self._devices[unit]
        settings: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY", "EXECUTION_MODE_HINT": "ACCURACY"}
        if set(self._devices.values()) == {"CPU"}:
            settings |= {"INFERENCE_NUM_THREADS": 1, "ENABLE_CPU_PINNING": False}
        try:
            supported = self._core.get_property(device, "SUPPORTED_PROPERTIES")
            wanted = {name: value for name, value in settings.items() if name in supported}
            return self._core.compile_model(model, device, wanted)
        except RuntimeError as error:
            shapes = " x ".join(str(port.get_partial_shape()) for port in model.inputs)
            raise MeasurementError(f"a product of {shapes} does not compile on {device}: {words(error)}") from error

    def _title(self, device: str) -> str:
        try:
            return f"OpenVINO {device}, {self._core.get_property(device, 'FULL_DEVICE_NAME')}"
        except RuntimeError:
            return f"OpenVINO {device}"


def _matmul(rows: int, cols: int, num_tokens: int) -> Any:
    """weight [rows, cols] x tokens [num_tokens, cols]^T; -1 is any size."""
    weight = op.parameter(ov.PartialShape([rows, cols]), np.float32)
    tokens = op.parameter(ov.PartialShape([num_tokens, cols]), np.float32)
    return ov.Model([op.matmul(weight, tokens, False, True)], [weight, tokens], "matmul")


def _num_tokens(part: Part) -> int:
    """How many the unit computes: the dynamic one pads nothing."""
    return part.padded_tokens if part.unit == NPU else part.num_tokens


def _graph_shape(matmul: Matmul, part: Part) -> Shape:
    return part.num_rows, matmul.cols, part.padded_tokens


def _unique(parts: Iterable[Part]) -> tuple[Part, ...]:
    return tuple(dict.fromkeys(parts))


def _check_present(device: str, available: Sequence[str]) -> None:
    if not any(found == device or found.startswith(f"{device}.") for found in available):
        raise DeviceUnavailableError(f"no {device}: OpenVINO found {', '.join(available) or 'none'}")
