"""Chunk sizes at the rate that each of them bears within one TTFT (Layered Prefill, section 3.3, Table 2).

The paper sets each chunk size's rate so that mean TTFT is about 2.5 s, a quarter of its limit; with the chunk mean TBT
rises, and expert loads and energy fall. Here blocks are served at several rates, and a curve through all of them gives
the rate at which half of the requests have their first token within a quarter of the TTFT limit: the median in place of
the mean, since its crossing comes with an interval (serving/capacity.py), and one long prompt does not move it. The
figures at that rate lie between those of the rates on either side, linearly in the log of the rate, for each round by
itself. A case fails where the largest chunk against the smallest is proven to bear a lower rate, to have a smaller TBT
or to load more, and is inconclusive where the rates tried do not hold a crossing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.served_block import ServedBlock
from pytest_npubench.core.case import Case
from pytest_npubench.serving.attainment_curve import CapacityRun
from pytest_npubench.serving.capacity import Capacity, capacity_ratio, estimate
from pytest_npubench.suites.scheduling.experiment import LoadExperiment, ServingDetail
from pytest_npubench.suites.scheduling.figures import (
    blocks,
    loaded_bytes,
    mean_tbt_s,
    mean_ttft_s,
    ratio_bounds,
    ratio_metric,
)
from pytest_npubench.suites.scheduling.kinds.attainment import FACTORS, scaled
from pytest_npubench.suites.scheduling.plan import ServingPlan
from pytest_npubench.suites.scheduling.points import ServedPoint
from pytest_npubench.suites.scheduling.policies import served
from pytest_npubench.suites.scheduling.spec import LoadSpec
from pytest_npubench.verdict import Gate, Verdict, VerdictKind, judge_gates
from pytest_npubench.verdict.result import Judgement, Metric

CHUNKS = (1, 2, 4)  # times tokens_per_iteration, the paper's 512
# larger chunks bear more, and their smallest rate tells nothing: 2.6 / 1.3 in the paper
LARGER_FACTORS = (*FACTORS[1:], 4.0, 5.0)
TTFT_SHARE = 0.25
TARGET = 0.5

Served = Sequence[tuple[ServedBlock, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRateRow:
    """The columns of Table 2 of one chunk size at the rate that it bears, each the mean over rounds; energy is None
    where it is not known."""

    chunk_size_tokens: int
    rate_per_s: float
    rate_interval: tuple[float | None, float | None] | None
    ttft_mean_s: float
    tbt_mean_s: float
    tbt_p99_s: float
    expert_load_bytes_per_request: float
    mj_per_prompt_and_output_token: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRateDetail(ServingDetail):
    """By chunk size; without a crossing there are no rows, and `why` says so."""

    ttft_limit_s: float
    chunk_size_tokens: tuple[int, ...]
    rates_tried_per_s: tuple[tuple[float, ...], ...]
    num_blocks: int
    why: tuple[str, ...]
    rows: tuple[ChunkRateRow, ...] = ()
    rate_ratio_interval: tuple[float, float] | None = None


class ChunkRateKind(LoadExperiment):
    name = "chunk_rate"

    def points(self, case: Case, plan: ServingPlan) -> tuple[ServedPoint, ...]:
        """Orders points by chunk, then by rate; those of the smallest chunk are attainment's too, and measured once."""
        load = plan.load(case)
        return tuple(
            _in_chunks(served("chunked", plan, scaled(load, factor)), size)
            for size, factors in zip(_sizes(plan, load), (FACTORS, LARGER_FACTORS, LARGER_FACTORS), strict=True)
            for factor in factors
        )

    def judge(self, case: Case, plan: ServingPlan, measured: Measured) -> Judgement:
        by_size: dict[object, list[tuple[ServedBlock, ...]]] = {}
        for point in self.points(case, plan):
            by_size.setdefault(dict(point.settings)["chunk_size_tokens"], []).append(blocks(measured, point))
        by_chunk = list(by_size.values())
        capacities = [_capacity(served_at) for served_at in by_chunk]
        sizes = _sizes(plan, plan.load(case))
        limit_s = TTFT_SHARE * by_chunk[0][0][0].limits.ttft_s
        detail = ChunkRateDetail(
            ttft_limit_s=limit_s,
            chunk_size_tokens=sizes,
            rates_tried_per_s=tuple(tuple(found[0].rate_per_s for found in served_at) for served_at in by_chunk),
            num_blocks=len(by_chunk[0][0]),
            why=tuple(capacity.why for capacity in capacities),
        )
        what = f"chunks of {sizes[0]} to {sizes[-1]} tokens at a median TTFT of {limit_s:.3g} s"
        if unknown := [_missing(size, one) for size, one in zip(sizes, capacities, strict=True) if not one.reached]:
            verdict = Verdict(kind=VerdictKind.INCONCLUSIVE, reason="; ".join(unknown))
            return Judgement(verdict=verdict, what=what, detail=detail)
        rows = tuple(map(_row, sizes, capacities, by_chunk))
        return _judgement(what, by_chunk, capacities, replace(detail, rows=rows))


def _in_chunks(point: ServedPoint, size: int) -> ServedPoint:
    """Runs the same point in chunks of another size."""
    return replace(point, settings=tuple(dict(point.settings, chunk_size_tokens=size).items()))


def _sizes(plan: ServingPlan, load: LoadSpec) -> tuple[int, ...]:
    return tuple(chunk * plan.tokens_per_iteration(load) for chunk in CHUNKS)


def _judgement(
    what: str, by_chunk: Sequence[Served], capacities: Sequence[Capacity], detail: ChunkRateDetail
) -> Judgement:
    rate = capacity_ratio(capacities[-1], capacities[0])
    assert rate.value is not None  # both are reached
    ends = (by_chunk[0], capacities[0]), (by_chunk[-1], capacities[-1])
    tbt, loads = (_ratios(*ends, figure) for figure in (mean_tbt_s, _loads_per_request))
    highest_rate = rate.interval[1] if rate.interval else rate.value
    return Judgement(
        verdict=judge_gates(
            (
                Gate(metric="rate, smallest / largest chunk, at the least", value=1 / highest_rate, limit=1.0),
                Gate(
                    metric="mean TBT, smallest / largest chunk, at the least", value=1 / ratio_bounds(tbt)[1], limit=1.0
                ),
                Gate(
                    metric="expert bytes a request, largest / smallest, at the least",
                    value=ratio_bounds(loads)[0],
                    limit=1.0,
                ),
            )
        ),
        what=what,
        metrics=(
            Metric(name="rate_largest_over_smallest", unit="ratio", value=rate.value, better="higher"),
            ratio_metric("tbt_largest_over_smallest", tbt),
            ratio_metric("expert_load_largest_over_smallest", loads),
        ),
        detail=replace(detail, rate_ratio_interval=rate.interval),
    )


def _capacity(served_at: Served) -> Capacity:
    """Between the lowest and the highest rate: where half of the requests meet the limit."""
    runs = [
        CapacityRun(
            rate_per_s=block.rate_per_s,
            seed=index,
            num_attained=sum(record.ttft_s <= TTFT_SHARE * block.limits.ttft_s for record in block.records),
            num_arrived=len(block.records),
            spent_s=block.duration_s,
        )
        for found in served_at
        for index, block in enumerate(found)
    ]
    rates = [run.rate_per_s for run in runs]
    return estimate(runs, low=min(rates), high=max(rates), target=TARGET)


def _missing(size: int, capacity: Capacity) -> str:
    return f"chunk of {size}: {capacity.why}"


def _row(size: int, capacity: Capacity, served_at: Served) -> ChunkRateRow:
    def mean(figure: Callable[[ServedBlock], float]) -> float:
        return float(np.mean(_at_rate(served_at, capacity, figure)))

    assert capacity.rate_per_s is not None
    knows_energy = all(block.energy_j for found in served_at for block in found)
    return ChunkRateRow(
        chunk_size_tokens=size,
        rate_per_s=capacity.rate_per_s,
        rate_interval=capacity.interval,
        ttft_mean_s=mean(mean_ttft_s),
        tbt_mean_s=mean(mean_tbt_s),
        tbt_p99_s=mean(_tbt_p99_s),
        expert_load_bytes_per_request=mean(_loads_per_request),
        mj_per_prompt_and_output_token=mean(_mj_per_token) if knows_energy else None,
    )


def _at_rate(served_at: Served, capacity: Capacity, figure: Callable[[ServedBlock], float]) -> tuple[float, ...]:
    """Returns the figure at the capacity in each round, between the rates on either side."""
    assert capacity.rate_per_s is not None
    rounds = zip(*served_at, strict=True)
    return tuple(
        float(
            np.interp(
                np.log(capacity.rate_per_s),
                np.log([block.rate_per_s for block in row]),
                [figure(block) for block in row],
            )
        )
        for row in rounds
    )


def _ratios(
    smallest: tuple[Served, Capacity], largest: tuple[Served, Capacity], figure: Callable[[ServedBlock], float]
) -> tuple[float, ...]:
    pairs = zip(_at_rate(*largest, figure), _at_rate(*smallest, figure), strict=True)
    return tuple(large / small for large, small in pairs)


def _loads_per_request(block: ServedBlock) -> float:
    return loaded_bytes(block) / len(block.records)


def _tbt_p99_s(block: ServedBlock) -> float:
    return float(np.quantile(block.gaps_s, 0.99))


def _mj_per_token(block: ServedBlock) -> float:
    assert block.energy_j is not None
    return 1e3 * block.energy_j / block.num_tokens


KIND = ChunkRateKind()
