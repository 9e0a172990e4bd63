"""What n samples prove about a percentile, and what they do not.

Each sample lies over the p-quantile with probability 1 - p, so the number that does is binomial, whatever the samples'
distribution. With v of n samples over a limit, the quantile is proven to be within it with confidence c when

    P(Binomial(n, 1 - p) <= v) <= 1 - c

and proven to be beyond it when P(Binomial(n, 1 - p) >= v) <= 1 - c: the exact bounds of Clopper & Pearson (1934,
10.1093/biomet/26.4.404). In between the samples cannot tell; more are needed, never a guess. Samples must be
independent, such as requests of an open arrival process, not steps of one request.

Worked number: p99 at 99 % with none over needs 0.99^n <= 0.01, n = 459; with one over 662.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pytest_npubench.errors import MeasurementError
from pytest_npubench.stats.checks import BoolArray, fraction, row

IntArray = npt.NDArray[np.int64]
SLACK = 1e-12  # 1 - 0.9 and 0.1 differ in the last bit


def percentile_bounds(samples: npt.ArrayLike, level: float, confidence: float) -> tuple[float | None, float | None]:
    """Order statistics (low, high), each of which bounds the `level` quantile with `confidence` on its own.

    None on a side that n samples cannot bound. Raises MeasurementError: no samples, one not finite; ConfigError: a
    level or confidence outside (0, 1).
    """
    _checked_levels(level, confidence)
    ordered = np.sort(row("samples", samples))
    num_over = np.arange(ordered.size + 1)
    # a limit at the (n - v)-th of n samples has at most v over it, one just below the (n - v + 1)-th at least v
    enough_within = np.flatnonzero(_proves_within(num_over, ordered.size, level, confidence))
    enough_beyond = np.flatnonzero(_proves_beyond(num_over, ordered.size, level, confidence))
    low = float(ordered[ordered.size - enough_beyond[0]]) if enough_beyond.size else None
    high = float(ordered[ordered.size - enough_within[-1] - 1]) if enough_within.size else None
    return low, high


def proportion_bounds(num_good: int, num_total: int, confidence: float) -> tuple[float, float]:
    """Two-sided Clopper-Pearson interval of a fraction such as SLO attainment, from counts.

    Raises MeasurementError: no trials, or counts that do not fit; ConfigError: a confidence outside (0, 1).
    """
    from scipy import special  # a quarter of a second that collecting cases need not pay

    if num_total < 1 or not 0 <= num_good <= num_total:
        raise MeasurementError(f"{num_good} good of {num_total}; want 0 <= good <= total and a total of at least 1")
    tail, num_bad = (1 - fraction("confidence", confidence)) / 2, num_total - num_good
    low = float(special.betaincinv(num_good, num_bad + 1, tail)) if num_good else 0.0
    high = float(special.betaincinv(num_good + 1, num_bad, 1 - tail)) if num_bad else 1.0
    return low, high


def _proves_within(num_over: int | IntArray, num_samples: int, level: float, confidence: float) -> BoolArray:
    from scipy import special

    return np.asarray(special.bdtr(num_over, num_samples, 1 - level) <= 1 - confidence + SLACK)


def _proves_beyond(num_over: int | IntArray, num_samples: int, level: float, confidence: float) -> BoolArray:
    from scipy import special

    at_least = special.bdtrc(np.subtract(num_over, 1), num_samples, 1 - level)  # 1 for num_over = 0
    return np.asarray(at_least <= 1 - confidence + SLACK)


def _checked_levels(level: float, confidence: float) -> None:
    fraction("level", level)
    fraction("confidence", confidence)


def quantile_interval(
    samples: npt.ArrayLike, quantile: float = 0.5, coverage: float = 0.95
) -> tuple[float, float] | None:
    """(low, high) in the samples' unit; None where there are too few of them (below 6 for a median at 95 %).

    The j-th and k-th smallest hold the p-quantile between them with probability P(j <= Binomial(n, p) < k) (David &
    Nagaraja 2003, Order Statistics, section 7.1). Each end may miss half of what the interval may, so the coverage is
    at least the one asked for. Worked number: the median of 10 samples lies between the 2nd and the 9th smallest with
    probability 1 - 2 (1 + 10) / 1024 = 0.979; the 3rd and 8th would give only 0.891.

    Raises MeasurementError: no samples, one not finite; ConfigError: a quantile or coverage outside (0, 1).
    """
    fraction("quantile", quantile)
    low, high = percentile_bounds(samples, quantile, 0.5 + fraction("coverage", coverage) / 2)
    return None if low is None or high is None else (low, high)
