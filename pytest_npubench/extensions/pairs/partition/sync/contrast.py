"""Fast against slow synchronisation at one operator: rows shared between both units, told by each mechanism, beside
each unit alone.

    speedup(mechanism) = min over units of median(total alone) / median(total shared, by mechanism)

All arms run once a round in shuffled order. Measured for [1024, 1024] x 1 token: flag 0.99, pipe 0.58: there the
split pays only where waiting is cheap. For [1024, 1024] x 16 tokens: 1.50 and 1.13.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pytest_npubench.extensions.pairs.partition.matmul import GPU, NPU, Matmul, Split
from pytest_npubench.extensions.pairs.partition.sync.splits import alone, row_split
from pytest_npubench.extensions.pairs.partition.unit import SplitTiming, UnitPair


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """One operator. alone: runs by unit; shared: runs of the split by mechanism; run i of each is of round i."""

    matmul: Matmul
    split: Split
    alone: Mapping[str, tuple[SplitTiming, ...]]
    shared: Mapping[str, tuple[SplitTiming, ...]]

    @property
    def best_single_s(self) -> float:
        return min(_median_total_s(runs) for runs in self.alone.values())

    def speedup(self, mechanism: str) -> float:
        """Best unit alone over the split; above 1 the split is faster."""
        return self.best_single_s / _median_total_s(self.shared[mechanism])

    def sync_s(self, mechanism: str) -> float:
        """Median of what a run took beyond its slower unit."""
        return float(np.median([run.sync_s for run in self.shared[mechanism]]))


def measure_contrast(
    pair: UnitPair, matmul: Matmul, *, gpu_share: float = 0.5, num_rounds: int = 50, seed: int = 0
) -> Contrast:
    """Raises PartitionError where gpu_share leaves a unit without rows."""
    split = row_split(matmul, gpu_share)
    single = {unit: alone(matmul, unit) for unit in (GPU, NPU)}
    pair.load(matmul, (*single.values(), split))
    arms: list[tuple[Split, str]] = [(each, pair.mechanisms[0]) for each in single.values()]
    arms += [(split, mechanism) for mechanism in pair.mechanisms]
    runs: dict[int, list[SplitTiming]] = {index: [] for index in range(len(arms))}
    generator = np.random.default_rng(seed)
    for _ in range(num_rounds):
        for index in generator.permutation(len(arms)).tolist():
            runs[index].append(pair.run(matmul, arms[index][0], mechanism=arms[index][1]))
    return Contrast(
        matmul=matmul,
        split=split,
        alone={unit: tuple(runs[index]) for index, unit in enumerate(single)},
        shared={mechanism: tuple(runs[index + len(single)]) for index, mechanism in enumerate(pair.mechanisms)},
    )


def _median_total_s(runs: tuple[SplitTiming, ...]) -> float:
    return float(np.median([run.total_s for run in runs]))
