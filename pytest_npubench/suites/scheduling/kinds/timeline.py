"""The tokens of one request over time, under layered and under chunked prefill (Layered Prefill, Fig. 5).

The request with the median E2E under chunked prefill in the first block. The paper's has an E2E of 5.5 s in place of
9.4 s (-41 %). A picture, with the E2E ratio of all requests as its figure; nothing is gated.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.served_block import ServedBlock
from pytest_npubench.core.case import Case
from pytest_npubench.suites.scheduling.experiment import LoadExperiment, ServingDetail
from pytest_npubench.suites.scheduling.figures import blocks, mean_e2e_s, paired_ratios, ratio_metric
from pytest_npubench.suites.scheduling.plan import ServingPlan
from pytest_npubench.suites.scheduling.points import ServedPoint
from pytest_npubench.suites.scheduling.policies import layered_and_chunked
from pytest_npubench.verdict import judge_gates
from pytest_npubench.verdict.result import Judgement


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineDetail(ServingDetail):
    """When each token of one request came under each policy, in seconds from its arrival."""

    rate_per_s: float
    layered_s: tuple[float, ...]
    chunked_s: tuple[float, ...]


class TimelineKind(LoadExperiment):
    name = "timeline"

    def points(self, case: Case, plan: ServingPlan) -> tuple[ServedPoint, ...]:
        return layered_and_chunked(case, plan)

    def judge(self, case: Case, plan: ServingPlan, measured: Measured) -> Judgement:
        layered, chunked = (blocks(measured, point) for point in self.points(case, plan))
        ratio = ratio_metric("e2e_ratio", paired_ratios(layered, chunked, mean_e2e_s))
        order = sorted(chunked[0].records, key=lambda record: record.e2e_latency_s)
        middle = chunked[0].records.index(order[len(order) // 2])
        return Judgement(
            verdict=judge_gates(()),
            what=f"E2E, layered / chunked, {layered[0].rate_per_s:.3g} req/s",
            metrics=(ratio,),
            detail=TimelineDetail(
                rate_per_s=layered[0].rate_per_s,
                layered_s=_since_arrival(layered[0], middle),
                chunked_s=_since_arrival(chunked[0], middle),
            ),
        )


def _since_arrival(block: ServedBlock, index: int) -> tuple[float, ...]:
    """When each token of a request came, in seconds from its arrival."""
    record = block.records[index]
    return tuple(at_s - record.arrival_s for at_s in record.token_times_s)


KIND = TimelineKind()
