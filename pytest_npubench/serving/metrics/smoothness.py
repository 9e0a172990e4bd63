"""Does the answer come in an even stream? The standard deviation of TBT, in the two ways it can be meant.

Layered Prefill (section 5.12, Table 12) prints one "TBT std" and does not say over what, so both are here:
- pooled: over all gaps of all requests. It also holds how requests differ from one another.
- per request: the deviation inside each request with at least two gaps, then their mean. What one reader sees.

Worked example: gaps (1, 3) and (5, 7): inside each sqrt(2) = 1.414, pooled sqrt(20 / 3) = 2.582.
"""

from __future__ import annotations

import math

import numpy as np

from pytest_npubench.serving.metrics.columns import RequestColumns
from pytest_npubench.serving.metrics.intervals import batches, jackknife_interval, mean_interval
from pytest_npubench.serving.metrics.metric import ServingMetric
from pytest_npubench.stats.checks import BoolArray, FloatArray

POOLED = "standard deviation of all gaps between two tokens, all requests together"
PER_REQUEST = "mean over requests with at least two gaps of the standard deviation of their own gaps"


def smoothness_metrics(columns: RequestColumns) -> tuple[ServingMetric, ...]:
    """Standard deviation of TBT, pooled and per request, each with its interval."""
    return _pooled(columns), _per_request(columns)


def deviation_of_each(columns: RequestColumns) -> tuple[FloatArray, BoolArray]:
    """Standard deviation of each request's own gaps, [K] seconds, and which of the N requests have one, [N]."""
    num_gaps, request = columns.num_gaps, columns.gap_request
    totals = np.bincount(request, columns.gaps_s, minlength=columns.num_requests)
    means = totals / np.maximum(num_gaps, 1)
    squares = np.bincount(request, (columns.gaps_s - means[request]) ** 2, minlength=columns.num_requests)
    has_gaps = num_gaps > 1
    return np.sqrt(squares[has_gaps] / (num_gaps[has_gaps] - 1)), has_gaps


def _pooled(columns: RequestColumns) -> ServingMetric:
    gaps = columns.gaps_s
    if gaps.size < 2:
        return _metric("tbt_std_pooled_s", POOLED, None, int(gaps.size), None, "fewer than two gaps")
    centred = gaps - gaps.mean()  # squares of small differences keep their digits
    batch = batches(columns.num_requests)[columns.gap_request]
    sums = [np.bincount(batch, weights) for weights in (np.ones_like(centred), centred, centred**2)]
    interval = jackknife_interval(np.stack(sums, axis=1), _deviation)
    return _metric("tbt_std_pooled_s", POOLED, float(gaps.std(ddof=1)), int(gaps.size), interval, "")


def _per_request(columns: RequestColumns) -> ServingMetric:
    deviations, has_gaps = deviation_of_each(columns)
    if not deviations.size:
        return _metric("tbt_std_per_request_s", PER_REQUEST, None, 0, None, "no request has two gaps")
    interval = mean_interval(deviations, batches(columns.num_requests)[has_gaps])
    value = float(deviations.mean())
    return _metric("tbt_std_per_request_s", PER_REQUEST, value, int(deviations.size), interval, "")


def _deviation(sums: FloatArray) -> float:
    count, total, squares = sums.tolist()
    return math.sqrt(max(0.0, (squares - total**2 / count) / max(count - 1, 1)))


def _metric(
    name: str, definition: str, value: float | None, num: int, interval: tuple[float, float] | None, note: str
) -> ServingMetric:
    return ServingMetric(
        name=name, unit="s", value=value, definition=definition, num_samples=num, interval=interval, note=note
    )
