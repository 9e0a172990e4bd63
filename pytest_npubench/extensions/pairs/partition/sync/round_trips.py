"""The round trip of each mechanism: one unit signals, the other answers, nothing in between.

Mechanisms take turns in blocks, so that a slow spell of the machine meets all of them. Measured on two cores: flag p50
1.2 us, p99 2.2 us; pipe 25 and 448. A phone's clFinish: about 400 us (HeteroInfer, section 3.1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pytest_npubench.errors import MeasurementError
from pytest_npubench.extensions.pairs.partition.unit import UnitPair


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTrips:
    """Seconds of each trip by one mechanism."""

    mechanism: str
    samples_s: tuple[float, ...]

    @property
    def p50_s(self) -> float:
        return float(np.percentile(self.samples_s, 50))

    @property
    def p99_s(self) -> float:
        return float(np.percentile(self.samples_s, 99))


def measure_round_trips(pair: UnitPair, *, num_trips: int = 1000, num_blocks: int = 5) -> tuple[RoundTrips, ...]:
    """num_trips of each mechanism, in num_blocks turns; the first trip of a block is its warm-up and left out."""
    if num_blocks < 1 or num_trips < num_blocks:
        raise MeasurementError(f"{num_trips} round trips in {num_blocks} blocks: want at least one trip a block")
    samples: dict[str, list[float]] = {mechanism: [] for mechanism in pair.mechanisms}
    for _ in range(num_blocks):
        for mechanism, trips_s in samples.items():
            trips_s.extend(pair.round_trips_s(mechanism, num_trips // num_blocks + 1)[1:])
    return tuple(RoundTrips(mechanism=mechanism, samples_s=tuple(trips_s)) for mechanism, trips_s in samples.items())
