"""Bursty arrivals: gamma gaps with a CV of 1.83 in place of Poisson's 1 (Layered Prefill, section 5.12, Table 12).

The paper's direction: layered prefill keeps its lead in TTFT (2.55 s against 5.63 s), in the standard deviation of TBT
(8.89 ms against 11.2 ms) and in Jain's index (0.850 against 0.809). Gated on TTFT, the others are shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.served_block import ServedBlock, pooled
from pytest_npubench.core.case import Case
from pytest_npubench.serving.arrivals import realised
from pytest_npubench.suites.scheduling.experiment import LoadExperiment, ServingDetail
from pytest_npubench.suites.scheduling.figures import (
    block_metric,
    blocks,
    mean_ttft_s,
    metrics_of,
    paired_ratios,
    ratio_metric,
)
from pytest_npubench.suites.scheduling.plan import ServingPlan
from pytest_npubench.suites.scheduling.points import ServedPoint
from pytest_npubench.suites.scheduling.policies import layered_and_chunked
from pytest_npubench.verdict import Gate, judge_gates
from pytest_npubench.verdict.result import Judgement

CV = 1.83
SHOWN = (
    "ttft_mean_s",
    "ttft_p95_s",
    "ttft_p99_s",
    "tbt_mean_s",
    "tbt_p95_s",
    "tbt_p99_s",
    "tbt_std_pooled_s",
    "tbt_std_per_request_s",
    "jain_index",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstinessDetail(ServingDetail):
    """The CV of the gaps asked for and the one that came; under each policy the figures that are shown, by name."""

    rate_per_s: float
    cv: float
    realised_cv: float | None
    layered: Mapping[str, float]
    chunked: Mapping[str, float]


class BurstinessKind(LoadExperiment):
    name = "burstiness"

    def points(self, case: Case, plan: ServingPlan) -> tuple[ServedPoint, ...]:
        return tuple(replace(point, cv=CV) for point in layered_and_chunked(case, plan))

    def judge(self, case: Case, plan: ServingPlan, measured: Measured) -> Judgement:
        layered, chunked = (blocks(measured, point) for point in self.points(case, plan))
        ttft = ratio_metric("ttft_ratio", paired_ratios(layered, chunked, mean_ttft_s))
        times = [record.arrival_s for record in pooled(layered[:1]).records]
        return Judgement(
            verdict=judge_gates((Gate(metric="mean TTFT, layered / chunked", value=ttft.value, limit=1.0),)),
            what=f"bursty arrivals, CV {CV}, {layered[0].rate_per_s:.3g} req/s",
            metrics=(
                ttft,
                block_metric("layered_ttft_s", "s", layered, mean_ttft_s),
                block_metric("chunked_ttft_s", "s", chunked, mean_ttft_s),
            ),
            detail=BurstinessDetail(
                rate_per_s=layered[0].rate_per_s,
                cv=CV,
                realised_cv=realised(times)[1],
                layered=_shown(layered, plan),
                chunked=_shown(chunked, plan),
            ),
        )


def _shown(served: Sequence[ServedBlock], plan: ServingPlan) -> Mapping[str, float]:
    return {metric.name: metric.value for metric in metrics_of(served, plan.shape)[0] if metric.name in SHOWN}


KIND = BurstinessKind()
