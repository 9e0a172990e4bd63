"""How well one run knows a figure, when its requests wait in one queue and so are alike one after the other.

Intervals for independent samples come out too narrow here: a queue that is long for one request is long for the next,
and all requests that decode together share every gap. Requests are therefore cut into 20 batches that follow one
another in order of arrival (Schmeiser 1982, 10.1287/opre.30.3.556: 10 to 30 batches), long enough to be nearly
independent of each other, and what differs between batches tells the error.

A figure f of sums (a mean, a standard deviation, Jain's index): leave out one of K batches at a time (Tukey's
jackknife; Miller 1974, 10.1093/biomet/61.1.1), f_k without batch k:

    pseudo_k = K f - (K - 1) f_k,    interval f +- t_{K-1} sd(pseudo) / sqrt(K)

A quantile: the fraction of values over it differs between batches by a variance V; independent values would have
p (1 - p) / n. So the n values are worth m = n (p (1 - p) / n) / V independent ones (Korn & Graubard 1998, Survey
Methodology 24, p. 193), and the interval is the one between order statistics of m evenly picked ones
(stats.percentile), which may not exist: 100 values bound no p99.

Worked number: three batches with values (1, 3), (2, 2), (4, 6) have f = 3, pseudo 2, 2 and 5, sd 1.73: their mean would
be 3 +- 4.30 x 1.73 / 1.73. No interval is given below five.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from pytest_npubench.serving.metrics.columns import IntArray
from pytest_npubench.stats.checks import FloatArray
from pytest_npubench.stats.error import student_quantile
from pytest_npubench.stats.percentile import quantile_interval

COVERAGE = 0.95
NUM_BATCHES = 20
MIN_BATCHES = 5  # with fewer, how they differ is itself unknown
MAX_ORDER_STATISTICS = 20_000  # binomials of more cost seconds, and no queue gives as many independent values


def batches(num_requests: int) -> IntArray:
    """Returns the batch of each request in order of arrival, [num_requests]; each its own where there are 20 or
    fewer."""
    num_batches = min(NUM_BATCHES, num_requests)
    return np.arange(num_requests, dtype=np.int64) * num_batches // max(num_requests, 1)


def jackknife_interval(sums: FloatArray, figure: Callable[[FloatArray], float]) -> tuple[float, float] | None:
    """Interval of figure(total) for sums of each batch, [K, S], the first column counting; None below 5 batches."""
    sums = sums[sums[:, 0] > 0]
    count = len(sums)
    if count < MIN_BATCHES:
        return None
    total = sums.sum(axis=0)
    whole = figure(total)
    pseudo = count * whole - (count - 1) * np.array([figure(total - one) for one in sums])
    half_width = _student(count) * float(pseudo.std(ddof=1)) / math.sqrt(count)
    return whole - half_width, whole + half_width


def mean_interval(values: FloatArray, batch: IntArray) -> tuple[float, float] | None:
    """Interval of the mean of values, [n], each of which is in its batch, [n]."""
    if not values.size:
        return None
    sums = np.array([np.bincount(batch), np.bincount(batch, values)], dtype=np.float64).T
    return jackknife_interval(sums, lambda total: float(total[1] / total[0]))


def batched_quantile_interval(values: FloatArray, batch: IntArray, quantile: float) -> tuple[float, float] | None:
    """Interval of a quantile of values, [n], each of which is in its batch, [n]."""
    sizes = np.bincount(batch)
    if np.count_nonzero(sizes) < MIN_BATCHES:
        return None
    worth = min(_independent_worth(values, batch, sizes, quantile), MAX_ORDER_STATISTICS)
    ordered = np.sort(values)
    picked = ((np.arange(worth) + 0.5) * values.size / worth).astype(np.int64)
    return quantile_interval(ordered[picked], quantile, COVERAGE)


def _independent_worth(values: FloatArray, batch: IntArray, sizes: IntArray, quantile: float) -> int:
    """Returns how many independent values would know the quantile as well; at least 1, at most n."""
    over = np.bincount(batch, values > np.quantile(values, quantile), minlength=sizes.size)
    num_batches = int(np.count_nonzero(sizes))
    fraction = float(over.sum()) / values.size
    squares = float(np.sum((over - fraction * sizes) ** 2)) * num_batches / (num_batches - 1)
    if squares == 0:
        return int(values.size)
    independent = fraction * (1 - fraction) * values.size
    few_batches = (_student(None) / _student(num_batches)) ** 2  # V is itself known from K batches only
    return max(1, min(int(values.size), int(values.size * independent / squares * few_batches)))


def _student(num_batches: int | None) -> float:
    freedom = math.inf if num_batches is None else num_batches - 1.0
    return float(student_quantile(0.5 + COVERAGE / 2, freedom))
