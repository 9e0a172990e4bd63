"""Metrics of served requests as a case reports them, whoever served them.

Counters of a wall-clock run follow its timing, so they are compared by their ratio and not exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_npubench.serving.metrics import ServingMetric
from pytest_npubench.verdict.result import GateKind, Metric

NOT_GATED = ("p50", "p90", "p95", "p99")
"""Percentiles of blocks this small are nearly their extremes: shown, and judged by their means."""


def reported(
    whole: Sequence[ServingMetric], of_blocks: Sequence[Sequence[ServingMetric]]
) -> tuple[tuple[Metric, ...], Mapping[str, object]]:
    """Figures of all blocks as one run, and of each block: the metrics that have a value, and all else about them as
    plain data (definitions, intervals, notes)."""
    of_each = [{metric.name: metric.value for metric in own} for own in of_blocks]
    metrics = tuple(_metric(metric, [values[metric.name] for values in of_each]) for metric in whole)
    return tuple(metric for metric in metrics if metric is not None), {metric.name: _about(metric) for metric in whole}


def _metric(metric: ServingMetric, values: Sequence[float | None]) -> Metric | None:
    if metric.value is None:
        return None
    known = [value for value in values if value is not None]
    gate: GateKind = "ratio" if metric.kind == "exact" and metric.value > 0 else metric.kind
    if any(part in metric.name for part in NOT_GATED) or (gate == "exact") or len(known) < len(values):
        gate = "none"
    if gate == "ratio" and not all(value > 0 for value in known):
        gate = "none"
    return Metric(
        name=metric.name,
        unit=metric.unit,
        value=metric.value,
        better=metric.better,
        samples=tuple(known),
        gate=gate,
    )


def _about(metric: ServingMetric) -> dict[str, object]:
    return {
        "unit": metric.unit,
        "value": metric.value,
        "definition": metric.definition,
        "num_samples": metric.num_samples,
        "interval": metric.interval,
        "note": metric.note,
    }
