"""What a pair of compute units offers: two units that run parts of one operator at once on shared memory.

The GPU role takes any shape; the NPU role runs graphs compiled for one shape each (HeteroInfer, sections 3.1, 3.2).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from pytest_npubench.errors import PartitionError, UnitLostError
from pytest_npubench.extensions.pairs.partition.matmul import Matmul, Split

VISIT_S = 0.005
MAX_RUNS = 25


class LastWords:
    """Remembers how a unit was lost, for all points of its campaign."""

    def __init__(self) -> None:
        self._words: str | None = None

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Wraps every use of the pair. Raises UnitLostError at once where a unit was lost before."""
        if self._words is not None:
            raise UnitLostError(self._words)
        try:
            yield
        except UnitLostError as error:
            self._words = str(error)
            raise


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitFacts:
    """One unit of a pair.

    name is the vendor's ("torch on core 0"). `tile`: rows are worth a multiple of it (1: any). standard_sizes: the
    token counts that graphs are made for, increasing; empty where any will do. zero_copy: results are written straight
    into the shared buffer. measured: False where figures come from a profile of single units alone.
    """

    name: str
    role: str
    tile: int = 1
    standard_sizes: tuple[int, ...] = ()
    zero_copy: bool = False
    measured: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitTiming:
    """One run of a split, in seconds. total_s from the submission until both are done and the result is whole.

    gpu_s, npu_s: each unit's own time for its parts, None where it had none. copy_s: bringing the static unit's
    results into the shared buffer (inside its unit's time). sync_s: total_s less the slower unit's time.
    compile_s: inside total_s, only where the split prepares online.
    """

    total_s: float
    gpu_s: float | None
    npu_s: float | None
    sync_s: float
    copy_s: float = 0.0
    compile_s: float = 0.0


class UnitPair(Protocol):
    """Two units on one machine. Every method raises UnitLostError when a unit died, with its last words."""

    @property
    def gpu(self) -> UnitFacts: ...

    @property
    def npu(self) -> UnitFacts: ...

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """How the units can wait for each other, the fastest first ("flag", "pipe")."""
        ...

    def load(self, matmul: Matmul, splits: Sequence[Split]) -> Mapping[tuple[int, int, int], float]:
        """Make weight [rows, cols] and activation of `matmul` (seeded, fp32) where they are not there yet, and compile
        what the splits need. Returns the compile seconds of each new graph by (rows, cols, padded tokens).
        Raises PartitionError on a split that check_split refuses, MeasurementError where memory does not suffice."""
        ...

    def run(self, matmul: Matmul, split: Split, *, mechanism: str | None = None) -> SplitTiming:
        """Run a loaded split once; mechanism None: the fastest."""
        ...

    def output(self, matmul: Matmul) -> NDArray[np.float32]:
        """[rows, tokens]: what the last run of this operator left in the shared buffer."""
        ...

    def spoil_output(self, matmul: Matmul) -> None:
        """Fill that buffer with NaN, so that what the next run leaves out is seen."""
        ...

    def operands(self, matmul: Matmul) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Returns the weight [rows, cols] and the activation [cols, tokens] of a loaded operator, as they are now."""
        ...

    def round_trips_s(self, mechanism: str, num_trips: int) -> tuple[float, ...]:
        """One unit signals, the other answers: the seconds of each trip."""
        ...

    def stream_bytes_per_s(self, units: Sequence[str], num_bytes: int) -> Mapping[str, float]:
        """Memory bandwidth by unit while the units named read num_bytes each at the same time (matrix-vector)."""
        ...

    def evict(self) -> None:
        """Have both units read more memory than their caches hold: weights come from memory in the next run."""
        ...

    def unload(self) -> None:
        """Forget all operators and graphs."""
        ...

    def close(self) -> None:
        """End the units. Leaves no process and no shared memory; may be called twice."""
        ...


class ChainPair(UnitPair, Protocol):
    """A pair that runs chains inside its own process."""

    def run_chain(
        self, matmul: Matmul, split: Split, num_times: int, *, mechanism: str
    ) -> tuple[float, tuple[SplitTiming, ...]]: ...

    def run_queued(self, matmul: Matmul, split: Split, num_times: int) -> SplitTiming: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """One run of a chain of dependent operators, each begun when the one before is whole (HeteroInfer, Fig. 10): its
    seconds, and each operator's timing. Worked: 10 operators of max(100, 80) us in 1,200 us expose 20 us
    an operator."""

    total_s: float
    operators: tuple[SplitTiming, ...]

    @property
    def exposed_s(self) -> float:
        """Returns seconds an operator beyond its slower unit."""
        slower_s = sum(max(run.gpu_s or 0.0, run.npu_s or 0.0) for run in self.operators)
        return (self.total_s - slower_s) / len(self.operators)


def runs_chains(pair: UnitPair) -> ChainPair:
    """Raises PartitionError on a pair that runs single operators only."""
    if not (hasattr(pair, "run_chain") and hasattr(pair, "run_queued")):
        raise PartitionError(f"{type(pair).__name__} runs single operators only; a chain runs on a pair with run_chain")
    return cast(ChainPair, pair)


def beside(matmul: Matmul) -> Matmul:
    """Returns the same operator on a weight of its own."""
    return replace(matmul, name=f"{matmul.name} beside")


def load_cold(pair: UnitPair, matmul: Matmul, splits: Sequence[Split]) -> Mapping[tuple[int, int, int], float]:
    """Loads what run_cold wants. Returns and raises as UnitPair.load."""
    return {**pair.load(beside(matmul), splits), **pair.load(matmul, splits)}


def run_cold(pair: UnitPair, matmul: Matmul, split: Split, mechanism: str | None = None) -> SplitTiming:
    """One run on a weight that comes from memory. The split of another weight runs right before it, so that code,
    signals and activations are in the caches again, as they are in the middle of a model."""
    pair.evict()
    pair.run(beside(matmul), split, mechanism=mechanism)
    return pair.run(matmul, split, mechanism=mechanism)


def visit(pair: UnitPair, matmul: Matmul, split: Split, mechanism: str | None, *, is_cold: bool = False) -> SplitTiming:
    """Returns the run of median total time (the lower middle one of an even number) among as many as a visit has time
    for; one where the weight is cold. Worked number: a split of 1 ms runs 5 times (5 ms a visit), one of 20 ms once,
    one of 50 us 25 times."""
    if is_cold:
        return run_cold(pair, matmul, split, mechanism)
    first = pair.run(matmul, split, mechanism=mechanism)
    num_runs = min(MAX_RUNS, int(VISIT_S / first.total_s)) if first.total_s > 0 else MAX_RUNS
    runs = [first, *(pair.run(matmul, split, mechanism=mechanism) for _ in range(num_runs - 1))]
    return sorted(runs, key=lambda timing: timing.total_s)[(len(runs) - 1) // 2]
