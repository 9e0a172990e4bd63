"""Metrics of blocks that a server answered: those of serving.metrics that are seen from outside, and the client's."""

from __future__ import annotations

import re
from dataclasses import replace

from pytest_npubench.serving.metrics import ServingMetric, summarize
from pytest_npubench.suites.server.blocks import LoadBlock

INSIDE = (
    "queue_delay",
    "mean_decode_batch_size",
    "expert_",
    "padded_expert_",
    "kv_bytes",
    "hidden_bytes",
    "energy_",
    "num_preemptions",
)
"""Beginnings of metrics that only the server itself could tell."""
LATENCY = re.compile(r"(ttft|tbt)_.*_s")
STALLS = ("p50", "p99", "worst")


def seen_from_outside(block: LoadBlock) -> tuple[ServingMetric, ...]:
    """Always the same names in the same order; None and the reason for what is not known. Latencies are of requests
    that did not fail. The last ones, the longest gap and the client's stalls, are shown and gated by nothing."""
    metrics = tuple(metric for metric in summarize(block, block.slo) if not metric.name.startswith(INSIDE))
    if num_failed := sum(record.aborted is not None and record.num_tokens > 0 for record in block.records):
        whole = {metric.name: metric for metric in summarize(block.answered, None)}
        left_out = f"{num_failed} failed after their first token, left out"
        metrics = tuple(
            _with_note(whole[metric.name], left_out) if LATENCY.fullmatch(metric.name) else metric for metric in metrics
        )
    return (*metrics, _longest_gap(block), *map(_stall, STALLS, block.stalls_s))


def _with_note(metric: ServingMetric, note: str) -> ServingMetric:
    return replace(metric, note="; ".join(filter(None, (metric.note, note))))


def _longest_gap(block: LoadBlock) -> ServingMetric:
    gaps_s = block.gaps_s
    return ServingMetric(
        name="tbt_worst_s",
        unit="s",
        value=max(gaps_s, default=None),
        definition="the longest gap between two tokens of a request",
        kind="none",
        num_samples=len(gaps_s),
        note="" if gaps_s else "no request had two tokens",
    )


def _stall(part: str, value_s: float) -> ServingMetric:
    return ServingMetric(
        name=f"loop_stall_{part}_s",
        unit="s",
        value=value_s,
        definition="how late the client's event loop woke, looking every 5 ms; timers are rounded up by up to 1 ms",
        kind="none",
        num_samples=1,
        note="",
    )
