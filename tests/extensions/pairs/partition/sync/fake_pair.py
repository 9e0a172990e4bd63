"""A pair whose times are made up, so that what is computed from them can be checked by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pytest_npubench.extensions.pairs.partition.matmul import GPU, NPU, Matmul, Split
from pytest_npubench.extensions.pairs.partition.unit import SplitTiming, UnitFacts

SYNC_S = {"flag": 1e-6, "pipe": 100e-6}
ROW_S = {GPU: 1e-6, NPU: 2e-6}  # a row of the weight


class FakePair:
    """A part takes its rows times ROW_S; waiting SYNC_S where both units have one."""

    gpu = UnitFacts(name="fake gpu", role=GPU, static_shapes=False)
    npu = UnitFacts(name="fake npu", role=NPU, static_shapes=True)
    mechanisms = ("flag", "pipe")

    def __init__(self) -> None:
        self.runs: list[tuple[str, str | None]] = []
        self.trips: list[str] = []

    def load(self, matmul: Matmul, splits: Sequence[Split]) -> Mapping[tuple[int, int, int], float]:
        return {}

    def run(self, matmul: Matmul, split: Split, *, mechanism: str | None = None) -> SplitTiming:
        self.runs.append((split.strategy, mechanism))
        spent = {unit: sum(part.num_rows for part in split.of(unit)) * ROW_S[unit] for unit in split.units}
        sync_s = SYNC_S[mechanism or "flag"] if len(spent) == 2 else 0.0
        return SplitTiming(
            total_s=max(spent.values()) + sync_s, gpu_s=spent.get(GPU), npu_s=spent.get(NPU), sync_s=sync_s
        )

    def run_chain(
        self, matmul: Matmul, split: Split, num_times: int, *, mechanism: str
    ) -> tuple[float, tuple[SplitTiming, ...]]:
        runs = tuple(self.run(matmul, split, mechanism=mechanism) for _ in range(num_times))
        return sum(run.total_s for run in runs), runs

    def run_queued(self, matmul: Matmul, split: Split, num_times: int) -> SplitTiming:
        run = self.run(matmul, split)
        total_s = (run.total_s - run.sync_s) * num_times
        return SplitTiming(total_s=total_s, gpu_s=run.gpu_s, npu_s=run.npu_s, sync_s=0.0)

    def output(self, matmul: Matmul) -> NDArray[np.float32]:
        return np.zeros((matmul.rows, matmul.tokens), np.float32)

    def round_trips_s(self, mechanism: str, num_trips: int) -> tuple[float, ...]:
        self.trips.append(mechanism)
        return (1.0, *(SYNC_S[mechanism] * place for place in range(1, num_trips)))

    def stream_bytes_per_s(self, units: Sequence[str], num_bytes: int) -> Mapping[str, float]:
        return dict.fromkeys(units, 1e9)

    def unload(self) -> None:
        """Nothing was loaded."""

    def close(self) -> None:
        """Nothing was opened."""
