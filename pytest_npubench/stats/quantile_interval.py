"""How well n samples know a quantile, whatever their distribution: an interval between two of the samples.

The number of samples below the p-quantile is Binomial(n, p), so the j-th and k-th smallest hold it between them with
probability P(j <= Binomial(n, p) < k) (David & Nagaraja 2003, Order Statistics, section 7.1). Each end is given half of
what the interval may miss, so the true coverage is at least the one asked for.

Worked number: the median of 10 samples lies between the 2nd and the 9th smallest with probability
1 - 2 (1 + 10) / 1024 = 0.979; the 3rd and 8th would give only 0.891.
"""

from __future__ import annotations

import numpy.typing as npt

from pytest_npubench.stats.checks import fraction
from pytest_npubench.stats.percentile import percentile_bounds


def quantile_interval(
    samples: npt.ArrayLike, quantile: float = 0.5, coverage: float = 0.95
) -> tuple[float, float] | None:
    """(low, high) in the samples' unit; None where there are too few of them (below 6 for a median at 95 %).

    Raises MeasurementError: no samples, one not finite; ConfigError: a quantile or coverage outside (0, 1).
    """
    fraction("quantile", quantile)
    low, high = percentile_bounds(samples, quantile, 0.5 + fraction("coverage", coverage) / 2)
    return None if low is None or high is None else (low, high)
