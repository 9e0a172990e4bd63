"""Two units at work on splits: what all pairs that live in a process of their own have in common.

One run: the static unit is told, the dynamic one computes its parts, then waits for the other.

    total = max(gpu, npu) + sync    (HeteroInfer, section 4.4: copying lies inside the unit's own time here)

The dynamic unit calls something for each part (TorchUnit, CudaUnit); the static one takes keys of graphs it built
before (XlaWorker, CudaGraphUnit).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from pytest_npubench.core.clock import perf_counter
from pytest_npubench.errors import PartitionError
from pytest_npubench.extensions.pairs.partition.matmul import (
    GPU,
    NPU,
    GraphForm,
    Matmul,
    Part,
    Split,
    check_split,
)
from pytest_npubench.extensions.pairs.partition.unit import SplitTiming, UnitFacts
from pytest_npubench.extensions.pairs.partition.units.arena import SharedArena
from pytest_npubench.extensions.pairs.partition.units.operands import (
    Operands,
    OperandStore,
    PartArrays,
    activation_length,
    part_arrays,
    part_spec,
    weight_name,
)
from pytest_npubench.extensions.pairs.partition.units.signals import FLAG

STREAM_COLS = 4096
STREAM_READS = 5
EVICTED = 1.25  # of a unit's last cache, which other data than its own may share


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """gpu_runs: one call a part. keys: the static unit's graphs in order. online: key and spec of those
    to compile in each run."""

    gpu_runs: tuple[Callable[[], object], ...] = ()
    keys: tuple[str, ...] = ()
    online: tuple[tuple[str, Mapping[str, object]], ...] = ()

    def with_(self, other: Prepared) -> Prepared:
        """Joins two: operators that read the same activation need no waiting between them."""
        return Prepared(
            gpu_runs=self.gpu_runs + other.gpu_runs, keys=self.keys + other.keys, online=self.online + other.online
        )


class DynamicUnit(Protocol):
    """Runs any shape. `mechanisms`: how it can be waited for; none where it computes in the caller's thread. copy_s: of
    the last run, seconds that went into copying results. cache_bytes: of the last cache before memory."""

    @property
    def name(self) -> str: ...
    @property
    def zero_copy(self) -> bool: ...
    @property
    def mechanisms(self) -> tuple[str, ...]: ...
    @property
    def copy_s(self) -> float: ...
    @property
    def cache_bytes(self) -> int: ...
    @property
    def torch(self) -> Any: ...
    def prepare(self, arrays: PartArrays) -> Callable[[], object]: ...
    def run(self, runs: Sequence[Callable[[], object]], mechanism: str) -> float | None: ...
    def round_trips_s(self, mechanism: str, num_trips: int) -> tuple[float, ...]: ...


class StaticUnit(Protocol):
    """Runs graphs made before, by key, in order. XlaWorker says what each method does."""

    @property
    def name(self) -> str: ...
    @property
    def mechanisms(self) -> tuple[str, ...]: ...
    @property
    def cache_bytes(self) -> int: ...
    @property
    def num_done(self) -> int: ...
    @property
    def copies_s(self) -> tuple[float, ...]: ...
    def build(self, key: str, spec: Mapping[str, object]) -> float: ...
    def forget(self) -> None: ...
    def arm(self, mechanism: str) -> None: ...
    def submit(self, keys: Sequence[str], *, mechanism: str) -> None: ...
    def wait(self) -> tuple[float, ...]: ...
    def round_trips_s(self, mechanism: str, num_trips: int) -> tuple[float, ...]: ...


class SplitUnits:
    """arguments: standard_sizes, tile, seed. pids: of the processes at work, by short name."""

    def __init__(
        self,
        gpu: DynamicUnit,
        npu: StaticUnit,
        arguments: Mapping[str, Any],
        arena: SharedArena,
        pids: Mapping[str, int],
    ) -> None:
        self._gpu, self._npu = gpu, npu
        self._arguments, self._pids = arguments, dict(pids)
        self.torch = gpu.torch
        self._arena, self.store = arena, OperandStore(arena, arguments["seed"])
        self._graphs: set[tuple[int, int, int]] = set()
        self._keys: set[str] = set()
        self._operands: dict[Matmul, Operands] = {}
        self._prepared: dict[tuple[Matmul, Split], Prepared] = {}

    def facts(self) -> dict[str, Any]:
        gpu = UnitFacts(name=self._gpu.name, role=GPU, zero_copy=self._gpu.zero_copy)
        npu = UnitFacts(
            name=self._npu.name,
            role=NPU,
            tile=self._arguments["tile"],
            standard_sizes=tuple(self._arguments["standard_sizes"]),
        )
        return {"gpu": gpu, "npu": npu, "mechanisms": self._mechanisms, "pids": self._pids}

    @property
    def _mechanisms(self) -> tuple[str, ...]:
        return self._gpu.mechanisms or self._npu.mechanisms

    def load(
        self, matmul: Matmul, splits: Sequence[Split], *, source: str | None = None, length: int = 0
    ) -> dict[tuple[int, int, int], float]:
        """Loads as UnitPair says; operators that read one activation name its `source` and agree on its `length`."""
        for split in splits:
            check_split(matmul, split)
        compiled: dict[tuple[int, int, int], float] = {}
        length = max(length, activation_length(matmul, splits))
        operands = self._operands[matmul] = self.store.make(matmul, length, source=source)
        for split in splits:
            if (matmul, split) not in self._prepared:
                self._prepared[matmul, split] = self._prepare(matmul, split, operands, compiled)
        return compiled

    def run(self, matmul: Matmul, split: Split, mechanism: str | None = None) -> SplitTiming:
        return self.run_prepared(self.prepared(matmul, split), mechanism or FLAG)

    def prepared(self, matmul: Matmul, split: Split) -> Prepared:
        if (matmul, split) not in self._prepared:
            raise PartitionError(f"{split.strategy} of {matmul.name}: load this split before it is run")
        return self._prepared[matmul, split]

    def run_prepared(self, work: Prepared, mechanism: str) -> SplitTiming:
        told_by = mechanism if mechanism in self._npu.mechanisms else FLAG
        if work.keys:
            self._npu.arm(told_by)
        began_s = perf_counter()
        self._compile_online(work)
        compiled_s = perf_counter()
        if work.keys:
            self._npu.submit(work.keys, mechanism=told_by)
        gpu_s = self._gpu.run(work.gpu_runs, mechanism)
        npu_s = sum(self._npu.wait()) if work.keys else None
        total_s = perf_counter() - began_s
        compile_s = compiled_s - began_s if work.online else 0.0
        return SplitTiming(
            total_s=total_s,
            gpu_s=gpu_s,
            npu_s=npu_s,
            sync_s=max(total_s - compile_s - max(gpu_s or 0.0, npu_s or 0.0), 0.0),
            copy_s=(sum(self._npu.copies_s) if work.keys else 0.0) + (self._gpu.copy_s if work.gpu_runs else 0.0),
            compile_s=compile_s,
        )

    def run_queued(self, matmul: Matmul, split: Split, num_times: int) -> SplitTiming:
        """Runs the split's parts num_times, the static unit's in one submission: no waiting in between."""
        work = self.prepared(matmul, split)
        return self.run_prepared(Prepared(gpu_runs=work.gpu_runs * num_times, keys=work.keys * num_times), FLAG)

    def run_chain(
        self, matmul: Matmul, split: Split, num_times: int, mechanism: str
    ) -> tuple[float, tuple[SplitTiming, ...]]:
        """Runs the split num_times, each after the one before is whole. Returns seconds of all, and each timing."""
        work = self.prepared(matmul, split)
        began_s = perf_counter()
        each = tuple(self.run_prepared(work, mechanism) for _ in range(num_times))
        return perf_counter() - began_s, each

    def output_name(self, matmul: Matmul) -> str:
        return self._named(matmul).output

    def operand_names(self, matmul: Matmul) -> tuple[str, str, str | None]:
        """Returns the weight's, the activation's, and that of the weight's scales."""
        names = self._named(matmul)
        return names.weight, names.activation, names.scales

    def round_trips_s(self, mechanism: str, num_trips: int) -> tuple[float, ...]:
        unit = self._gpu if self._gpu.mechanisms else self._npu
        return unit.round_trips_s(mechanism, num_trips)

    def stream_bytes_per_s(self, units: Sequence[str], num_bytes: int) -> dict[str, float]:
        """Each unit reads a matrix of its own, times a vector, STREAM_READS times; together, the GPU reads on until the
        NPU is done, so that all the NPU's reads are contended."""
        rows = _stream_rows(num_bytes)
        works = {unit: self._stream(unit, rows) for unit in units}
        for work in works.values():
            self.run_prepared(work, FLAG)  # the first touch of the pages is no bandwidth
        num_read = rows * STREAM_COLS * 4
        gpu, npu = works.get(GPU), works.get(NPU)
        read_s: dict[str, list[float]] = {unit: [] for unit in units}
        if npu is not None:
            self._npu.arm(FLAG)
            self._npu.submit(npu.keys * STREAM_READS, mechanism=FLAG)
        while gpu is not None and (npu is None or self._npu.num_done < STREAM_READS):
            read_s[GPU].append(self._gpu.run(gpu.gpu_runs, FLAG) or 0.0)
            if npu is None and len(read_s[GPU]) == STREAM_READS:
                break
        if npu is not None:
            read_s[NPU].extend(self._npu.wait())
        return {unit: num_read / float(np.median(seconds)) for unit, seconds in read_s.items()}

    def evict(self) -> None:
        """Both units read a matrix that is larger than their last caches."""
        units: Mapping[str, DynamicUnit | StaticUnit] = {GPU: self._gpu, NPU: self._npu}
        works = [self._stream(name, _stream_rows(EVICTED * unit.cache_bytes)) for name, unit in units.items()]
        self.run_prepared(works[0].with_(works[1]), FLAG)

    def unload(self) -> None:
        self._npu.forget()
        self.store.free()
        self._graphs.clear()
        self._keys.clear()
        self._operands.clear()
        self._prepared.clear()

    def _prepare(
        self, matmul: Matmul, split: Split, operands: Operands, compiled: dict[tuple[int, int, int], float]
    ) -> Prepared:
        parts = [(_key(operands, part, split.form), part) for part in split.of(NPU)]
        if split.prepares_online:
            specs = tuple((key, {**part_spec(operands, part, split.form), "fresh": True}) for key, part in parts)
            return Prepared(gpu_runs=self._gpu_runs(split, operands), keys=tuple(key for key, _ in parts), online=specs)
        for key, part in parts:
            graph = (part.num_rows, matmul.cols, part.padded_tokens)
            compile_s = self._build(key, part_spec(operands, part, split.form))
            if graph not in self._graphs:
                self._graphs.add(graph)
                compiled[graph] = compile_s
        work = Prepared(gpu_runs=self._gpu_runs(split, operands), keys=tuple(key for key, _ in parts))
        self.run_prepared(work, FLAG)  # first calls allocate and fault pages in
        return work

    def _build(self, key: str, spec: Mapping[str, object]) -> float:
        if key in self._keys:
            return 0.0
        self._keys.add(key)
        return self._npu.build(key, spec)

    def _compile_online(self, work: Prepared) -> None:
        for key, spec in work.online:
            self._npu.build(key, spec)

    def _gpu_runs(self, split: Split, operands: Operands) -> tuple[Callable[[], object], ...]:
        return tuple(self._gpu.prepare(part_arrays(self._arena, operands, part)) for part in split.of(GPU))

    def _named(self, matmul: Matmul) -> Operands:
        if matmul not in self._operands:
            raise PartitionError(f"{matmul.name} [{matmul.rows}, {matmul.cols}] x {matmul.tokens} was not loaded")
        return self._operands[matmul]

    def _stream(self, unit: str, rows: int) -> Prepared:
        matmul = Matmul(name=f"stream_{unit}", rows=rows, cols=STREAM_COLS, tokens=1)
        part = Part(unit=unit, first_row=0, num_rows=rows, first_token=0, num_tokens=1, padded_tokens=1)
        split = Split(strategy=f"stream_{unit}", parts=(part,))
        self.store.repeat(weight_name(matmul), (rows, STREAM_COLS))
        self.load(matmul, [split])
        return self.prepared(matmul, split)


def _stream_rows(num_bytes: float) -> int:
    return max(int(num_bytes / (4 * STREAM_COLS)), 1)


def _key(operands: Operands, part: Part, form: GraphForm) -> str:
    rows = f"rows {part.first_row}+{part.num_rows}"
    tokens = f"tokens {part.first_token}+{part.num_tokens} to {part.padded_tokens}"
    return f"{operands.output} of {operands.activation}: {rows}, {tokens}, {form}"
