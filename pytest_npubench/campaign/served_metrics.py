"""Metrics of served requests as a case reports them, whoever served them.

A metric's value is that of all blocks as one run, its samples those of each block: blocks are what differs between
sessions. Counters of a wall-clock run follow its timing, so they are compared by their ratio and not exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pytest_npubench.campaign.served_block import BlockT, ServedBlock, pooled
from pytest_npubench.serving.metrics import ServingMetric
from pytest_npubench.verdict.result import GateKind, Metric

NOT_GATED = ("p50", "p90", "p95", "p99")
"""Percentiles of blocks this small are nearly their extremes: shown, and judged by their means."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedFigure:
    """One figure of a served run, in its own unit; value is None where it is not known, and note says why."""

    unit: str
    value: float | None
    definition: str
    num_samples: int
    interval: tuple[float, float] | None
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SloDetail:
    """The limits that a case's requests were held to, in seconds; None where there were none."""

    ttft_s: float | None = None
    tbt_s: float | None = None


def reported(
    blocks: Sequence[BlockT], summary: Callable[[BlockT], Sequence[ServingMetric]]
) -> tuple[tuple[Metric, ...], Mapping[str, ServedFigure]]:
    """Returns the metrics that have a value, and by name all figures, with their definitions, intervals and notes."""
    whole = summary(pooled(blocks))
    of_each = [{metric.name: metric.value for metric in summary(block)} for block in blocks]
    metrics = (_metric(metric, [values[metric.name] for values in of_each]) for metric in whole)
    return tuple(metric for metric in metrics if metric is not None), {metric.name: _figure(metric) for metric in whole}


def missed(metrics: Iterable[Metric]) -> float:
    """Returns the share of the arrived requests that missed their limits, of metrics of requests that had any."""
    return 1 - next(metric.value for metric in metrics if metric.name == "slo_attainment")


def _metric(metric: ServingMetric, values: Sequence[float | None]) -> Metric | None:
    if metric.value is None:
        return None
    known_values = [value for value in values if value is not None]
    gate: GateKind = "ratio" if metric.kind == "exact" and metric.value > 0 else metric.kind
    if any(part in metric.name for part in NOT_GATED) or (gate == "exact") or len(known_values) < len(values):
        gate = "none"
    if gate == "ratio" and not all(value > 0 for value in known_values):
        gate = "none"
    return Metric(
        name=metric.name,
        unit=metric.unit,
        value=metric.value,
        better=metric.better,
        samples=tuple(known_values),
        gate=gate,
    )


def _figure(metric: ServingMetric) -> ServedFigure:
    return ServedFigure(
        unit=metric.unit,
        value=metric.value,
        definition=metric.definition,
        num_samples=metric.num_samples,
        interval=metric.interval,
        note=metric.note,
    )


def block_work(blocks: Sequence[ServedBlock]) -> dict[str, float]:
    """Returns the shares of work that repeat between blocks of one size: tokens that ran and came back, over those
    asked for. A share of which nothing was counted is left out.

    Worked example: 60 requests of 6,000 prompt tokens and 1,260 answer tokens under layered prefill in two groups of
    layers run 12,000 prompt tokens through half of the layers each, and 1,200 decode rows, for the first token of an
    answer comes from its prompt: prefilled / prompt tokens 1, decoded / asked 1, answered / asked 1.
    """
    if not blocks:
        return {}
    records = [record for block in blocks for record in block.records]
    asked = sum(record.output_tokens or 0 for record in records)
    counts = {
        "prefilled / prompt tokens": (
            sum(map(prefilled, blocks)),
            sum(record.prompt_tokens or 0 for record in records),
        ),
        "decoded / asked": (sum(sum(block.log.num_decode) for block in blocks), asked - len(records)),
        "answered / asked": (sum(record.num_tokens for record in records), asked),
    }
    shares = {name: done / wanted for name, (done, wanted) in counts.items() if done and wanted}
    return {"requests": float(len(blocks[0].records)), **shares}


def prefilled(block: ServedBlock) -> float:
    """Prompt tokens that ran through all layers: each pass counts by its share of them."""
    log = block.log
    in_layers = zip(log.num_prefill_tokens, log.num_prefill_layers, strict=True)
    return sum(tokens * layers for tokens, layers in in_layers) / block.num_layers
