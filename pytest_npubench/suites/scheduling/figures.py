"""The blocks of a point, their figures, and ratios between two policies that served the same blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.served_block import ServedBlock, failures_of
from pytest_npubench.campaign.served_metrics import ServedFigure, reported
from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.errors import MeasurementError
from pytest_npubench.serving.metrics import summarize
from pytest_npubench.stats.margin_test import interval
from pytest_npubench.suites.scheduling.points import ServedPoint
from pytest_npubench.verdict.result import Better, GateKind, Metric

MAX_LOG = 700.0  # exp of more overflows


def blocks(measured: Measured, point: ServedPoint) -> tuple[ServedBlock, ...]:
    """Returns the blocks of a point, one a round. Raises MeasurementError with the reason where it failed."""
    return tuple(block for (block,) in measured.visits(point.name, ServedBlock))


def metrics_of(
    served: Sequence[ServedBlock], shape: DecoderShape
) -> tuple[tuple[Metric, ...], Mapping[str, ServedFigure]]:
    """Returns the metrics that have a value, and all figures by name."""
    return reported(
        served, lambda block: summarize(block, block.slo, num_experts=shape.num_experts, energy_j=block.energy_j)
    )


def host_words(figures: Mapping[str, ServedFigure]) -> str:
    """How much of a mean TBT is the host's; empty where that is unknown."""
    host = figures.get("tbt_host_mean_s")
    return host_part("a TBT", None if host is None else host.value, figures["tbt_mean_s"].value)


def host_part(what: str, host_s: float | None, whole_s: float | None) -> str:
    """Such as "4.1 of 16.8 ms of a TBT are the host's"; empty where one of the two is unknown."""
    return f"{1e3 * host_s:.3g} of {1e3 * whole_s:.3g} ms of {what} are the host's" if host_s and whole_s else ""


def paired_ratios(
    left: Sequence[ServedBlock], right: Sequence[ServedBlock], figure: Callable[[ServedBlock], float]
) -> tuple[float, ...]:
    """left / right of each pair of blocks, which served the same requests at the same times.

    Raises MeasurementError where a request of either failed: fewer requests are another load.
    """
    check_whole(left)
    check_whole(right)
    return tuple(figure(one) / figure(other) for one, other in zip(left, right, strict=True))


def check_whole(served: Sequence[ServedBlock]) -> None:
    """Raises MeasurementError with how many requests failed, and why."""
    if reason := failures_in(served):
        raise MeasurementError(reason)


def failures_in(served: Sequence[ServedBlock]) -> str:
    """Over all blocks: "2 of 24 requests failed: the engine died"; empty where none did."""
    return failures_of([record for block in served for record in block.records])


def ratio_metric(name: str, ratios: Sequence[float]) -> Metric:
    """Returns the geometric mean of ratios, with them as samples. A ratio of two times of one run needs no other
    machine."""
    mean = math.exp(float(np.mean(np.log(ratios))))
    return Metric(name=name, unit="ratio", value=mean, samples=tuple(ratios))


def block_metric(
    name: str,
    unit: str,
    served: Sequence[ServedBlock],
    figure: Callable[[ServedBlock], float],
    *,
    better: Better = "lower",
    gate: GateKind = "ratio",
) -> Metric:
    """Returns the mean of a figure over the blocks, with those of each as samples: what one policy does by itself."""
    samples = tuple(map(figure, served))
    value = sum(samples) / len(samples)
    return Metric(name=name, unit=unit, value=value, better=better, samples=samples, gate=gate)


def ratio_bounds(ratios: Sequence[float]) -> tuple[float, float]:
    """95 % interval of the ratios' geometric mean (Student t on their logs); of a single one nothing is known."""
    logs = np.log(ratios)
    if len(logs) < 2:
        return 0.0, math.inf
    low, high = interval(float(logs.mean()), float(logs.std(ddof=1)) / math.sqrt(len(logs)), len(logs) - 1)
    return math.exp(float(low)), math.exp(min(float(high), MAX_LOG))


def ratio_interval(ratios: Sequence[float]) -> tuple[float, float] | None:
    """ratio_bounds, where there is more than one ratio."""
    return ratio_bounds(ratios) if len(ratios) > 1 else None


def mean_ttft_s(block: ServedBlock) -> float:
    """Averages over the requests that have a first token. Raises MeasurementError where none has."""
    return mean_of_first_tokens([block])


def mean_of_first_tokens(served: Sequence[ServedBlock]) -> float:
    """Mean TTFT over the requests of all blocks that have a first token. Raises MeasurementError where none has."""
    ttfts_s = [ttft_s for block in served for ttft_s in block.ttfts_s]
    if not ttfts_s:
        raise MeasurementError(failures_in(served) or "no request has a token")
    return float(np.mean(ttfts_s))


def mean_e2e_s(block: ServedBlock) -> float:
    return float(np.mean([record.e2e_latency_s for record in block.records]))


def mean_tbt_s(block: ServedBlock) -> float:
    return float(np.mean(block.gaps_s))


def worst_tbt_s(block: ServedBlock) -> float:
    return max(block.gaps_s)


def loaded_bytes(block: ServedBlock) -> float:
    return float(block.expert_load_bytes)


def output_tokens_per_s(block: ServedBlock) -> float:
    return block.num_output_tokens / block.duration_s
