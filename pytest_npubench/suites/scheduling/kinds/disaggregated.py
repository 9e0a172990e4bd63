"""Prefill and decode on a device each, against policies that have both as one (Layered Prefill, section 5.8, Table 10).

Over equal hardware: the paper has two H100, by tensor parallelism or one for prefill and one for decode. On a CPU the
engine of chunked, layered and hybrid prefill has all processors; the pair has the same ones, half of them and half of
the KV cache for each process (suites/scheduling/pair.py). Keys and values go from one process to the other through a
pipe: their bytes and seconds are counted, and are part of a request's first gap.

The paper: disaggregation has the smallest TBT (mean 16.4 ms, layered 19.8, chunked 32.1) and the largest TTFT (3.94,
1.24, 3.00 s). Gated, each on the side of its interval where it cannot be chance: that layered prefill's mean TTFT is
below chunked prefill's, and that the pair's mean TBT is below layered prefill's. How long a prompt waits for the
prefill device hangs on how nearly that is saturated, and the paper prints no rate: TTFT of the pair is shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.served_block import ServedBlock
from pytest_npubench.core.case import Case
from pytest_npubench.suites.scheduling.experiment import LoadExperiment, ServingDetail
from pytest_npubench.suites.scheduling.figures import (
    blocks,
    mean_e2e_s,
    mean_tbt_s,
    mean_ttft_s,
    paired_ratios,
    ratio_bounds,
    ratio_interval,
    ratio_metric,
)
from pytest_npubench.suites.scheduling.pair import POLICY
from pytest_npubench.suites.scheduling.plan import ServingPlan
from pytest_npubench.suites.scheduling.points import ServedPoint
from pytest_npubench.suites.scheduling.policies import served
from pytest_npubench.verdict import Gate, judge_gates
from pytest_npubench.verdict.result import Judgement

POLICIES = ("chunked", "layered", "hybrid", POLICY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """As the paper's columns, in seconds, over the requests of all blocks."""

    ttft_mean_s: float
    ttft_p99_s: float
    tbt_mean_s: float
    tbt_p99_s: float

    @classmethod
    def of(cls, served: Sequence[ServedBlock]) -> Latencies:
        ttft_s = [ttft_s for block in served for ttft_s in block.ttfts_s]
        tbt_s = [gap_s for block in served for gap_s in block.gaps_s]
        return cls(
            ttft_mean_s=float(np.mean(ttft_s)),
            ttft_p99_s=float(np.quantile(ttft_s, 0.99)),
            tbt_mean_s=float(np.mean(tbt_s)),
            tbt_p99_s=float(np.quantile(tbt_s, 0.99)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """What moved, and the seconds from asking for it until the decode side had it; None where nothing moved."""

    num_requests: int
    bytes: int | None = None
    mean_s: float | None = None
    longest_s: float | None = None

    @classmethod
    def of(cls, served: Sequence[ServedBlock]) -> Handover:
        seconds = [value for block in served for value in block.handover_s]
        num_bytes = sum(value for block in served for value in block.handover_bytes)
        if not seconds:
            return cls(num_requests=0)
        return cls(num_requests=len(seconds), bytes=num_bytes, mean_s=float(np.mean(seconds)), longest_s=max(seconds))


@dataclass(frozen=True, slots=True, kw_only=True)
class DisaggregatedDetail(ServingDetail):
    """Intervals are those of the ratios apart / layered, 95 %; None where one block alone was served."""

    rate_per_s: float
    num_blocks: int
    policies: Mapping[str, Latencies]
    tbt_interval: tuple[float, float] | None
    ttft_interval: tuple[float, float] | None
    handover: Handover


class DisaggregatedKind(LoadExperiment):
    name = "disaggregated"

    def points(self, case: Case, plan: ServingPlan) -> tuple[ServedPoint, ...]:
        return tuple(served(policy, plan, plan.load(case)) for policy in POLICIES)

    def judge(self, case: Case, plan: ServingPlan, measured: Measured) -> Judgement:
        by_policy = {point.policy: blocks(measured, point) for point in self.points(case, plan)}
        layered, chunked, apart = by_policy["layered"], by_policy["chunked"], by_policy[POLICY]
        tbt = paired_ratios(apart, layered, mean_tbt_s)
        lead = paired_ratios(layered, chunked, mean_ttft_s)
        return Judgement(
            verdict=judge_gates(
                (
                    Gate(metric="mean TTFT, layered / chunked, at the least", value=ratio_bounds(lead)[0], limit=1.0),
                    Gate(metric="mean TBT, pair / layered, at the least", value=ratio_bounds(tbt)[0], limit=1.0),
                )
            ),
            what=f"mean TBT, prefill and decode apart / layered, {layered[0].rate_per_s:.3g} req/s",
            metrics=(
                ratio_metric("tbt_apart_over_layered", tbt),
                ratio_metric("ttft_apart_over_layered", paired_ratios(apart, layered, mean_ttft_s)),
                ratio_metric("e2e_apart_over_layered", paired_ratios(apart, layered, mean_e2e_s)),
                ratio_metric("ttft_layered_over_chunked", lead),
            ),
            detail=DisaggregatedDetail(
                rate_per_s=layered[0].rate_per_s,
                num_blocks=len(layered),
                policies={policy: Latencies.of(served_at) for policy, served_at in by_policy.items()},
                tbt_interval=ratio_interval(tbt),
                ttft_interval=ratio_interval(paired_ratios(apart, layered, mean_ttft_s)),
                handover=Handover.of(apart),
            ),
        )


KIND = DisaggregatedKind()
