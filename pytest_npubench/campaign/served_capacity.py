"""A capacity from blocks that were served at several rates, whoever served them, and how it is gated.

A curve through all blocks gives the capacity (serving/capacity.py). Its samples are those of each round, a curve
through its own blocks; one that does not cross is taken for the rate that it ends at, so a capacity is judged even
where only its bound is known. Between nights the device alone moves a curve; of MARGIN nobody is alarmed, since a few
short blocks tell no less.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean

from pytest_npubench.campaign.served_block import ServedBlock
from pytest_npubench.serving.attainment_curve import CapacityRun, fit_curve
from pytest_npubench.serving.capacity import Capacity, estimate
from pytest_npubench.serving.metrics import attainment_split
from pytest_npubench.verdict.result import Metric

MARGIN = 0.10


def attained(block: ServedBlock) -> float:
    """Returns the share of a block's requests that attained. Raises MeasurementError where it has no limits."""
    return attainment_split(block.records, block.limits)[0]


def capacity_of(rounds: Sequence[Sequence[ServedBlock]], target: float) -> Capacity:
    """Returns the capacity within the rates tried, by the blocks of all rounds."""
    runs = [run for index, blocks in enumerate(rounds) for run in _runs(blocks, index)]
    rates = [run.rate_per_s for run in runs]
    return estimate(runs, low=min(rates), high=max(*rates, 1.01 * min(rates)), target=target)


def capacity_metric(name: str, capacity: Capacity, rounds: Iterable[Sequence[ServedBlock]]) -> Metric:
    """Returns the pooled curve's capacity, or where it does not cross the mean of what rounds know; a sample a
    round."""
    samples = tuple(round_capacity(blocks, capacity.target) for blocks in rounds)
    mean = math.exp(fmean(map(math.log, samples)))
    return Metric(
        name=f"{name}_requests_per_s",
        unit="requests/s",
        value=mean if capacity.rate_per_s is None else capacity.rate_per_s,
        better="higher",
        samples=samples,
        margin=MARGIN,
    )


def round_capacity(blocks: Sequence[ServedBlock], target: float) -> float:
    """Returns the rate at which a curve through one round's blocks crosses the target, or the lowest or the highest
    rate where it lies beyond."""
    runs = _runs(blocks, 0)
    rates = [run.rate_per_s for run in runs]
    if all(run.attainment >= target for run in runs):
        return max(rates)
    if all(run.attainment < target for run in runs):
        return min(rates)
    return math.exp(fit_curve(runs, target, (math.log(min(rates)), math.log(max(rates)))).log_capacity)


def _runs(blocks: Iterable[ServedBlock], seed: int) -> list[CapacityRun]:
    return [
        CapacityRun(
            rate_per_s=block.rate_per_s,
            seed=seed,
            num_attained=round(attained(block) * len(block.records)),
            num_arrived=len(block.records),
            spent_s=block.duration_s,
        )
        for block in blocks
    ]
