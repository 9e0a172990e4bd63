"""What a pair of compute units offers: two units that run parts of one operator at once on shared memory.

The GPU role takes any shape; the NPU role runs graphs compiled for one shape each (HeteroInfer, sections 3.1, 3.2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pytest_npubench.extensions.pairs.partition.matmul import Matmul, Split


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitFacts:
    """One unit of a pair.

    name is the vendor's ("torch on core 0"). `tile`: rows are worth a multiple of it (1: any). standard_sizes: the
    token counts that graphs are made for, increasing; empty where any will do. zero_copy: results are written straight
    into the shared buffer. measured: False where figures come from a profile of single units alone.
    """

    name: str
    role: str
    static_shapes: bool
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

    def round_trips_s(self, mechanism: str, num_trips: int) -> tuple[float, ...]:
        """One unit signals, the other answers: the seconds of each trip."""
        ...

    def stream_bytes_per_s(self, units: Sequence[str], num_bytes: int) -> Mapping[str, float]:
        """Memory bandwidth by unit while the units named read num_bytes each at the same time (matrix-vector)."""
        ...

    def unload(self) -> None:
        """Forget all operators and graphs."""
        ...

    def close(self) -> None:
        """End the units. Leaves no process and no shared memory; may be called twice."""
        ...
