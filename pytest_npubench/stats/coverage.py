"""How often an interval that should hold a share of what is measured may miss it by chance.

A prediction is a sum of measured values, each with a weight, a variance and degrees of freedom (predictors/band.py);
several predictions share values. The interval of a measured mean around its prediction has the variances of both.

Worked number: ten predictions that share nothing miss a 90 % interval as often as the binomial says, in 99 of 100 runs
at most 4 times; ten that share all of their error miss together or not at all, so all 10 may be missed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance

import numpy as np

from pytest_npubench.errors import MeasurementError
from pytest_npubench.stats.checks import FloatArray
from pytest_npubench.stats.error import t_half_width

LEVEL = 0.99
NUM_DRAWS = 4000
EXACT = 1e-9  # of a value: where nothing scatters, rounding alone parts the two


@dataclass(frozen=True, slots=True)
class Share:
    """What a measured value adds to the error of a prediction."""

    weight: float
    variance: float
    degrees_of_freedom: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A prediction, the values that it rests on by their names, and the mean that was measured of the same."""

    predicted_s: float
    shares: Mapping[object, Share]
    measured_s: float
    measured_share: Share

    @classmethod
    def of(cls, *, predicted_s: float, shares: Mapping[object, Share], samples_s: Sequence[float]) -> Compared:
        """Raises MeasurementError for fewer than two samples."""
        if len(samples_s) < 2:
            raise MeasurementError(f"{len(samples_s)} samples tell no error of their mean; want at least 2")
        measured_share = Share(-1.0, variance(samples_s) / len(samples_s), len(samples_s) - 1)
        return cls(predicted_s=predicted_s, shares=shares, measured_s=fmean(samples_s), measured_share=measured_share)


def half_widths(comparisons: Sequence[Compared], coverage: float) -> FloatArray:
    """Returns the half width of the interval of each measured mean around its prediction, [num_compared]."""
    values = _Values.of(comparisons)
    return t_half_width(values.weights**2 * values.variances[:, None], values.degrees_of_freedom, coverage)


def covered(compared: Compared, coverage: float) -> bool:
    """Whether the mean lies in its interval."""
    (half,) = half_widths([compared], coverage)
    return bool(abs(compared.predicted_s - compared.measured_s) <= half + EXACT * compared.measured_s)


def most_misses(comparisons: Sequence[Compared], coverage: float, *, seed: int = 0) -> int:
    """Returns the number of misses that chance exceeds once in a hundred times, by simulation with the values shared as
    they are: each is normal about the truth, its variance is estimated again (chi-squared)."""
    values = _Values.of(comparisons)
    rng = np.random.default_rng(seed)
    size = (len(values.variances), NUM_DRAWS)
    spread, freedom = np.sqrt(values.variances)[:, None], values.degrees_of_freedom[:, None]
    off = np.einsum("kn,kd->nd", values.weights, rng.standard_normal(size) * spread)
    estimated = values.variances[:, None] * rng.chisquare(freedom, size) / freedom
    half = t_half_width(
        values.weights[:, :, None] ** 2 * estimated[:, None, :], values.degrees_of_freedom, coverage
    )  # [num_compared, NUM_DRAWS]
    misses = (np.abs(off) > half).sum(axis=0)
    return int(np.quantile(misses, LEVEL, method="higher"))


@dataclass(frozen=True, slots=True)
class _Values:
    """Weights [num_values, num_compared] of all values that any prediction or mean rests on, 0 where it does not."""

    weights: FloatArray
    variances: FloatArray
    degrees_of_freedom: FloatArray

    @classmethod
    def of(cls, comparisons: Sequence[Compared]) -> _Values:
        rows = [
            {**compared.shares, ("measured", index): compared.measured_share}
            for index, compared in enumerate(comparisons)
        ]
        shares = {name: share for row in rows for name, share in row.items()}
        weights = [[row[name].weight if name in row else 0.0 for row in rows] for name in shares]
        return cls(
            np.array(weights),
            np.array([share.variance for share in shares.values()]),
            np.array([share.degrees_of_freedom for share in shares.values()], dtype=float),
        )
