"""Expert bytes loaded by layered and by chunked prefill for the same requests (Layered Prefill, Table 7).

The paper counts -39 % on arXiv at 1.3 req/s and -12 % on ShareGPT, for Qwen3-30B-A3B on two H100. The reduction
depends on the rate, since a busier device shares its loads among more rows; it is stated with it. The case fails where
layered prefill loads more than chunked prefill does: then it has no reason to exist.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.served_block import ServedBlock
from pytest_npubench.core.case import Case
from pytest_npubench.serving.metrics import slo_attainment
from pytest_npubench.suites.scheduling.experiment import LoadExperiment, ServingDetail
from pytest_npubench.suites.scheduling.figures import (
    block_metric,
    blocks,
    loaded_bytes,
    mean_e2e_s,
    mean_tbt_s,
    mean_ttft_s,
    paired_ratios,
    ratio_metric,
)
from pytest_npubench.suites.scheduling.plan import ServingPlan
from pytest_npubench.suites.scheduling.points import ServedPoint
from pytest_npubench.suites.scheduling.policies import layered_and_chunked
from pytest_npubench.verdict import Gate, judge_gates
from pytest_npubench.verdict.result import Judgement


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertLoadsDetail(ServingDetail):
    """Bytes over all blocks; `reduction` is the share of them that layered prefill saves. slo_attainment is by policy;
    the summary leaves it out where there is none."""

    reduction: float
    rate_per_s: float
    layered_bytes: float
    chunked_bytes: float
    num_blocks: int
    slo_attainment: Mapping[str, float] = field(default_factory=dict)


class ExpertLoadsKind(LoadExperiment):
    name = "expert_loads"

    def points(self, case: Case, plan: ServingPlan) -> tuple[ServedPoint, ...]:
        return layered_and_chunked(case, plan)

    def judge(self, case: Case, plan: ServingPlan, measured: Measured) -> Judgement:
        layered, chunked = (blocks(measured, point) for point in self.points(case, plan))
        loads = ratio_metric("expert_load_ratio", paired_ratios(layered, chunked, loaded_bytes))
        others = {"ttft_ratio": mean_ttft_s, "tbt_ratio": mean_tbt_s, "e2e_ratio": mean_e2e_s}
        ratios = (ratio_metric(name, paired_ratios(layered, chunked, of)) for name, of in others.items())
        return Judgement(
            verdict=judge_gates((Gate(metric="expert bytes, layered / chunked", value=loads.value, limit=1.0),)),
            what=f"expert bytes, layered / chunked, {layered[0].rate_per_s:.3g} req/s",
            metrics=(
                loads,
                *ratios,
                block_metric("layered_expert_bytes", "B", layered, loaded_bytes),
                block_metric("chunked_expert_bytes", "B", chunked, loaded_bytes),
            ),
            detail=ExpertLoadsDetail(
                reduction=1 - loads.value,
                rate_per_s=layered[0].rate_per_s,
                layered_bytes=sum(map(loaded_bytes, layered)),
                chunked_bytes=sum(map(loaded_bytes, chunked)),
                num_blocks=len(layered),
                slo_attainment={"layered": _attainment(layered), "chunked": _attainment(chunked)},
            ),
        )


def _attainment(served: Sequence[ServedBlock]) -> float:
    """Over the requests of all blocks."""
    return slo_attainment([record for block in served for record in block.records], served[0].limits)


KIND = ExpertLoadsKind()
