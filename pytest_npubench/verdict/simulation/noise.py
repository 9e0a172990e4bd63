"""Noise of benchmark sessions, as log latencies: case + night (shared) + night x case + process + within.

Within a process samples follow an AR(1) of correlation 0.5, and 2 % of them are 10 to 50 % slow. The standard deviation
between sessions is made in equal variances of the three parts between them. A bimodal case starts each process (or each
night) in its slow clock, 6 % slower, with a probability of its own, drawn from 0.1 to 0.9.

    S1  within 1 %
    S2  S1 and 1 % between sessions
    S3  S2 and a quarter of the cases bimodal
    S4  within 3 %, between sessions 2 %
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pytest_npubench.stats.checks import FloatArray

CORRELATION = 0.5
OUTLIER_FRACTION = 0.02
MODE_GAP = 0.06
BIMODAL_FRACTION = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Standard deviations of log latency; mode says what a slow clock lasts for: a process or a night."""

    name: str
    within: float = 0.01
    between: float = 0.0
    bimodal: bool = False
    mode: str = "process"


MODELS = (
    Noise(name="S1"),
    Noise(name="S2", between=0.01),
    Noise(name="S3", between=0.01, bimodal=True),
    Noise(name="S3n", between=0.01, bimodal=True, mode="night"),
    Noise(name="S4", between=0.02, within=0.03),
)


class SimulatedSuite:
    """A suite of cases under one noise model, measured night after night."""

    def __init__(self, noise: Noise, num_cases: int, rng: np.random.Generator) -> None:
        self._noise = noise
        self._rng = rng
        self._num_cases = num_cases
        has_modes = (rng.random(num_cases) < BIMODAL_FRACTION) & noise.bimodal
        self._slow = np.where(has_modes, rng.uniform(0.1, 0.9, num_cases), 0.0)

    def night(self, num_processes: int, num_samples: int) -> FloatArray:
        """Log latencies of one night, [cases, processes, samples], each case's true level being 0."""
        rng, part = self._rng, self._noise.between / math.sqrt(3)
        shape = (self._num_cases, num_processes)
        clocks = shape if self._noise.mode == "process" else (self._num_cases, 1)
        slow = MODE_GAP * (rng.random(clocks) < self._slow[:, None])
        between = rng.normal() * part + rng.normal(size=(self._num_cases, 1)) * part + rng.normal(size=shape) * part
        return np.asarray((between + slow)[:, :, None] + self._within((*shape, num_samples)))

    def _within(self, shape: tuple[int, ...]) -> FloatArray:
        steps = self._rng.normal(size=shape)
        steps[..., 1:] *= math.sqrt(1 - CORRELATION**2)
        for index in range(1, shape[-1]):
            steps[..., index] += CORRELATION * steps[..., index - 1]
        outlier = self._rng.random(shape) < OUTLIER_FRACTION
        return np.asarray(steps * self._noise.within + np.where(outlier, self._rng.uniform(0.1, 0.5, shape), 0.0))
