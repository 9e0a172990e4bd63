"""TTFT, TBT, TPOT, E2E and queueing delay: mean, p50, p90, p95 and p99 over requests, TBT over all gaps of
all requests.

Quantiles interpolate linearly between order statistics. Of n values the p-quantile lies beyond the last but one where
n (1 - p) < 1, so a p99 of fewer than 100 samples is their maximum: it is given as that, and says so.

TTFT, TBT and queueing delay count whatever has happened, of unfinished requests too; E2E and TPOT want the whole
answer. What is missing is counted in the note: a policy that leaves requests waiting must not look fast for it.

Worked example: TTFTs of 1, 2, 3 and 10 s: mean 4, p50 2.5, p90, p95 and p99 10, the maximum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pytest_npubench.serving.metrics.columns import IntArray, RequestColumns
from pytest_npubench.serving.metrics.intervals import batched_quantile_interval, batches, mean_interval
from pytest_npubench.serving.metrics.metric import GateKind, ServingMetric
from pytest_npubench.stats.checks import FloatArray

PERCENTS = (50, 90, 95, 99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Values of one metric, [n] seconds, with the batch of the request each is of, [n]; note says what is missing."""

    name: str
    definition: str
    values: FloatArray
    batch: IntArray
    kind: GateKind = "ratio"
    note: str = ""


def latency_metrics(columns: RequestColumns) -> tuple[ServingMetric, ...]:
    """Mean, p50, p90, p95 and p99 of each of the five, with intervals."""
    finished = np.where(columns.finished, 0.0, np.nan)
    spans = columns.last_token_s - columns.first_token_s
    tpot = finished + spans / np.where(columns.num_tokens > 1, columns.num_gaps, np.nan)
    parts = (
        of_requests(columns, "ttft", "first token - arrival", columns.ttft_s, "no token"),
        Times(
            name="tbt",
            definition="every gap between two tokens of a request",
            values=columns.gaps_s,
            batch=batches(columns.num_requests)[columns.gap_request],
        ),
        of_requests(
            columns, "tpot", "(E2E - TTFT) / (tokens - 1) of a finished request", tpot, "not finished or a single token"
        ),
        of_requests(
            columns,
            "e2e",
            "last token - arrival of a finished request",
            finished + columns.last_token_s - columns.arrival_s,
            "not finished",
        ),
        of_requests(
            columns,
            "queue_delay",
            "first iteration that ran some of the prompt - arrival",
            columns.scheduled_s - columns.arrival_s,
            "never scheduled, or nobody said when",
            kind="none",  # often exactly 0, and TTFT holds it
        ),
    )
    return tuple(metric for part in parts for metric in spread_metrics(part))


def spread_metrics(times: Times) -> tuple[ServingMetric, ...]:
    """Mean, p50, p90, p95 and p99 of one metric; without values they say why."""
    values, batch = times.values, times.batch
    if not values.size:
        note = times.note or "no request has two tokens"
        return tuple(_metric(times, part, None, None, note) for part in ("mean", *map("p{}".format, PERCENTS)))
    return (
        _metric(times, "mean", float(values.mean()), mean_interval(values, batch), times.note),
        *(_percentile(times, percent) for percent in PERCENTS),
    )


def _percentile(times: Times, percent: int) -> ServingMetric:
    interval = batched_quantile_interval(times.values, times.batch, percent / 100)
    if times.values.size * (100 - percent) >= 100:
        value = float(np.quantile(times.values, percent / 100))
        return _metric(times, f"p{percent}", value, interval, times.note)
    says = f"the maximum: fewer than {100 // (100 - percent)} samples"
    note = f"{says}; {times.note}" if times.note else says
    return _metric(times, f"p{percent}", float(times.values.max()), interval, note)


def of_requests(
    columns: RequestColumns, name: str, definition: str, values: FloatArray, missing: str, kind: GateKind = "ratio"
) -> Times:
    """One value a request, [N], NaN where it has none; `missing` says why."""
    has_value = ~np.isnan(values)
    num_missing = int(has_value.size - has_value.sum())
    note = f"{num_missing} of {has_value.size} arrived requests are not counted: {missing}" if num_missing else ""
    return Times(
        name=name,
        definition=definition,
        values=values[has_value],
        batch=batches(columns.num_requests)[has_value],
        kind=kind,
        note=note if has_value.size else "no request arrived",
    )


def _metric(
    times: Times, part: str, value: float | None, interval: tuple[float, float] | None, note: str
) -> ServingMetric:
    of = "mean" if part == "mean" else f"{part[1:]}th percentile"
    return ServingMetric(
        name=f"{times.name}_{part}_s",
        unit="s",
        value=value,
        definition=f"{of} of {times.definition}",
        kind=times.kind,
        num_samples=int(times.values.size),
        interval=interval,
        note=note,
    )
