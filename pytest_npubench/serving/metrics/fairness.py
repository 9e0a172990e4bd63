"""Is one request's answer streamed as fast as another's?

Jain's index (Jain, Chiu & Hawe 1984, DEC-TR-301) over the decode throughput of each request, which Layered Prefill
(section 5.12) reports:

    J = (sum x)^2 / (n sum x^2),      x_i = (n_i - 1) / (t_last - t_first) tokens a second

It is 1 where all are equal and 1/n where one has everything. Requests with fewer than two tokens, or whose tokens came
all at once, have no x.

Worked example: x = (1, 1, 2): 16 / (3 x 6) = 0.889.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pytest_npubench.errors import MeasurementError
from pytest_npubench.serving.metrics.columns import RequestColumns
from pytest_npubench.serving.metrics.intervals import batches, jackknife_interval
from pytest_npubench.serving.metrics.metric import ServingMetric
from pytest_npubench.stats.checks import BoolArray, FloatArray, require, row

DEFINITION = (
    "Jain's index (sum x)^2 / (n sum x^2) of x = (tokens - 1) / (last token - first token) of each request with at "
    "least two tokens; 1 is equal speed for all"
)


def jain_index(values: Sequence[float]) -> float:
    """Jain's index of numbers >= 0, from 1/n to 1.

    Raises MeasurementError: none, one negative or not finite, or all of them 0, which have no shares to compare.
    """
    shares = row("values", values)
    require("values", shares, shares >= 0, "a number >= 0")
    largest = float(shares.max())
    if largest == 0:
        raise MeasurementError(f"values: all {shares.size} are 0; want at least one above 0")
    scaled = shares / largest  # squares neither overflow nor vanish
    return _index(float(shares.size), float(scaled.sum()), float(np.sum(scaled**2)))


def decode_throughputs(columns: RequestColumns) -> tuple[FloatArray, BoolArray]:
    """Tokens a second after the first one, [K], and which of the N requests they are of, [N]."""
    spans = np.nan_to_num(columns.last_token_s - columns.first_token_s)
    decodes = np.asarray((columns.num_tokens > 1) & (spans > 0))
    return np.asarray(columns.num_gaps[decodes] / spans[decodes]), decodes


def fairness_metrics(columns: RequestColumns) -> tuple[ServingMetric, ...]:
    """Jain's index, with its interval by leaving out batches of requests."""
    speeds, decodes = decode_throughputs(columns)
    if not speeds.size:
        note = f"none of {columns.num_requests} requests has two tokens at two times"
        return (_metric(None, 0, None, note),)
    scaled = speeds / speeds.max()
    batch = batches(columns.num_requests)[decodes]
    sums = [np.bincount(batch, weights) for weights in (np.ones_like(scaled), scaled, scaled**2)]
    interval = jackknife_interval(np.stack(sums, axis=1), lambda total: _index(*total.tolist()))
    return (_metric(jain_index(speeds.tolist()), int(speeds.size), interval, ""),)


def _metric(value: float | None, num: int, interval: tuple[float, float] | None, note: str) -> ServingMetric:
    return ServingMetric(
        name="jain_index",
        unit="",
        value=value,
        definition=DEFINITION,
        better="higher",
        kind="difference",
        num_samples=num,
        interval=interval,
        note=note,
    )


def _index(count: float, total: float, squares: float) -> float:
    """Rounding may lead out of [1/n, 1] by one bit."""
    return min(1.0, max(1.0 / count, total**2 / (count * squares)))
