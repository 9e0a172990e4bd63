"""Layered prefill with a fixed number of layer groups: TTFT against TBT (Layered Prefill, Table 11).

More groups, less prefill in an iteration: TTFT rises (0.480, 0.566, 0.768, 1.27 s for 2, 4, 8, 16 groups at 1.4 req/s)
and the tail of TBT falls (p99 138, 84.5, 54.6, 35.7 ms). One case compares the fewest groups with the most, on the same
requests, and fails where either goes the other way.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Case
from pytest_npubench.serving.settings import MERGE_CHUNKS
from pytest_npubench.suites.scheduling.experiment import LoadExperiment, ServingDetail
from pytest_npubench.suites.scheduling.figures import (
    block_metric,
    blocks,
    mean_ttft_s,
    paired_ratios,
    ratio_metric,
    worst_tbt_s,
)
from pytest_npubench.suites.scheduling.plan import ServingPlan
from pytest_npubench.suites.scheduling.points import ServedPoint
from pytest_npubench.verdict import Gate, judge_gates
from pytest_npubench.verdict.result import Judgement

GROUPS = (2, 4, 8, 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSweepDetail(ServingDetail):
    """By number of layer groups: mean TTFT over the blocks' means, and the worst TBT of any request."""

    rate_per_s: float
    groups: tuple[int, ...]
    ttft_mean_s: tuple[float, ...]
    worst_tbt_s: tuple[float, ...]


class GroupSweepKind(LoadExperiment):
    name = "group_sweep"

    def points(self, case: Case, plan: ServingPlan) -> tuple[ServedPoint, ...]:
        merge_cap = MERGE_CHUNKS * plan.tokens_per_iteration(plan.load(case))
        return tuple(
            ServedPoint(
                policy="layered",
                load=plan.load(case),
                settings=(("num_layer_groups", groups), ("merge_cap_tokens", merge_cap)),
            )
            for groups in GROUPS
            if groups <= plan.shape.num_layers
        )

    def judge(self, case: Case, plan: ServingPlan, measured: Measured) -> Judgement:
        points = self.points(case, plan)
        groups = tuple(groups for groups in GROUPS if groups <= plan.shape.num_layers)
        served = [blocks(measured, point) for point in points]
        ttft = ratio_metric("ttft_most_over_fewest", paired_ratios(served[-1], served[0], mean_ttft_s))
        tail = ratio_metric("worst_tbt_most_over_fewest", paired_ratios(served[-1], served[0], worst_tbt_s))
        span = f"{groups[0]} / {groups[-1]} groups"
        return Judgement(
            verdict=judge_gates(
                (
                    Gate(metric=f"mean TTFT, {span}", value=1 / ttft.value, limit=1.0),
                    Gate(metric=f"worst TBT, {groups[-1]} / {groups[0]} groups", value=tail.value, limit=1.0),
                )
            ),
            what=f"layer groups {groups[0]} to {groups[-1]}, {served[0][0].rate_per_s:.3g} req/s",
            metrics=(
                ttft,
                tail,
                *(
                    block_metric(f"{which}_groups_{name}", "s", found, figure)
                    for which, found in (("fewest", served[0]), ("most", served[-1]))
                    for name, figure in (("ttft_s", mean_ttft_s), ("worst_tbt_s", worst_tbt_s))
                ),
            ),
            detail=GroupSweepDetail(
                rate_per_s=served[0][0].rate_per_s,
                groups=groups,
                ttft_mean_s=tuple(sum(map(mean_ttft_s, found)) / len(found) for found in served),
                worst_tbt_s=tuple(max(map(worst_tbt_s, found)) for found in served),
            ),
        )


KIND = GroupSweepKind()
