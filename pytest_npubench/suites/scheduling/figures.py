"""Metrics of served blocks as a case reports them, and ratios between two policies that served the same blocks.

A metric's value is that of all blocks as one run, its samples those of each block: blocks are what differs between
sessions. Counters of a wall-clock run follow its timing, so they are compared by their ratio and not exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from pytest_npubench.campaign.served_metrics import reported
from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.errors import MeasurementError
from pytest_npubench.serving.metrics import ServingMetric, summarize
from pytest_npubench.stats.margin_test import interval
from pytest_npubench.suites.scheduling.blocks import Block, failures_of, pooled
from pytest_npubench.verdict.result import Metric

MAX_LOG = 700.0  # exp of more overflows


def metrics_of(found: Sequence[Block], shape: DecoderShape) -> tuple[tuple[Metric, ...], Mapping[str, object]]:
    """The metrics that have a value, and everything else about them as plain data: definitions, intervals, notes."""
    return reported(_summary(pooled(found), shape), [_summary(block, shape) for block in found])


def paired_ratios(left: Sequence[Block], right: Sequence[Block], figure: Callable[[Block], float]) -> tuple[float, ...]:
    """left / right of each pair of blocks, which served the same requests at the same times.

    Raises MeasurementError where a request of either failed: fewer requests are another load.
    """
    check_whole(left)
    check_whole(right)
    return tuple(figure(one) / figure(other) for one, other in zip(left, right, strict=True))


def check_whole(found: Sequence[Block]) -> None:
    """Raises MeasurementError with how many requests failed, and why."""
    if reason := failures_in(found):
        raise MeasurementError(reason)


def failures_in(found: Sequence[Block]) -> str:
    """Over all blocks: "2 of 24 requests failed: the engine died"; empty where none did."""
    return failures_of([record for block in found for record in block.records])


def ratio_metric(name: str, ratios: Sequence[float]) -> Metric:
    """The geometric mean of ratios, with them as samples. A ratio of two times of one run needs no other machine."""
    mean = math.exp(float(np.mean(np.log(ratios))))
    return Metric(name=name, unit="ratio", value=mean, samples=tuple(ratios))


def ratio_bounds(ratios: Sequence[float]) -> tuple[float, float]:
    """95 % interval of the ratios' geometric mean (Student t on their logs); of a single one nothing is known."""
    logs = np.log(ratios)
    if len(logs) < 2:
        return 0.0, math.inf
    low, high = interval(float(logs.mean()), float(logs.std(ddof=1)) / math.sqrt(len(logs)), len(logs) - 1)
    return math.exp(float(low)), math.exp(min(float(high), MAX_LOG))


def mean_ttft_s(block: Block) -> float:
    """Of the requests that have a first token. Raises MeasurementError where none has."""
    return mean_of_first_tokens([block])


def mean_of_first_tokens(found: Sequence[Block]) -> float:
    """Mean TTFT over the requests of all blocks that have a first token. Raises MeasurementError where none has."""
    ttfts_s = [record.ttft_s for block in found for record in block.records if record.token_times_s]
    if not ttfts_s:
        raise MeasurementError(failures_in(found) or "no request has a token")
    return float(np.mean(ttfts_s))


def mean_e2e_s(block: Block) -> float:
    return float(np.mean([record.e2e_latency_s for record in block.records]))


def mean_tbt_s(block: Block) -> float:
    return float(np.mean([gap for record in block.records for gap in record.tbt_s]))


def worst_tbt_s(block: Block) -> float:
    return max(gap for record in block.records for gap in record.tbt_s)


def loaded_bytes(block: Block) -> float:
    return float(block.expert_load_bytes)


def output_tokens_per_s(block: Block) -> float:
    return sum(record.num_tokens for record in block.records) / (block.ended_s - block.started_s)


def _summary(block: Block, shape: DecoderShape) -> tuple[ServingMetric, ...]:
    return summarize(block, block.slo, num_experts=shape.num_experts, energy_j=block.energy_j)
