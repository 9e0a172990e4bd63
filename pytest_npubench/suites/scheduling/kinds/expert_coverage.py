"""Which share of its experts a layer loads for one decode step of a batch (Layered Prefill, Table 1).

An exact counter: the same prompts in every session, so a change of it is a change of the router, the weights or the
counting. The paper's column for 128 experts, 8 of them a token, rises from 6.25 % at batch 1 to 86.3 % at 128.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import fmean

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Axes, Case
from pytest_npubench.stats.error import repeat_error
from pytest_npubench.suites.scheduling.experiment import LoadExperiment, ServingDetail
from pytest_npubench.suites.scheduling.figures import host_part
from pytest_npubench.suites.scheduling.plan import ServingPlan
from pytest_npubench.suites.scheduling.points import DecodePoint, DecodeSteps
from pytest_npubench.verdict import Gate, judge_gates
from pytest_npubench.verdict.result import Judgement, Metric

CONTEXT_TOKENS = 16
BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # those of the paper


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertCoverageDetail(ServingDetail):
    """Distinct experts of a decode step / experts of a layer, mean over layers. host_s: the host's part of a step, None
    where nothing tells it."""

    batch_size: int
    coverage: float
    host_s: float | None = None


class ExpertCoverageKind(LoadExperiment):
    name = "expert_coverage"

    def axes(self, plan: ServingPlan) -> Iterable[Axes]:
        if plan.shape.is_dense:
            return ()
        return ((("batch", size),) for size in BATCH_SIZES if size <= plan.serving.max_batch_size)

    def points(self, case: Case, plan: ServingPlan) -> tuple[DecodePoint, ...]:
        return (DecodePoint(batch_size=int(case.axis("batch")), context_tokens=CONTEXT_TOKENS),)

    def judge(self, case: Case, plan: ServingPlan, measured: Measured) -> Judgement:
        (point,) = self.points(case, plan)
        visits = [steps for (steps,) in measured.visits(point.name, DecodeSteps)]
        counted = [steps.expert_activations for steps in visits]
        step_s = [min(steps.step_s) for steps in visits]
        host_s = fmean(min(steps.host_s) for steps in visits) if all(steps.host_s for steps in visits) else None
        first, shape = counted[0], plan.shape
        coverage = sum(first) / (len(first) * shape.num_layers * shape.num_experts)
        changed = Gate(metric="rounds with another count", value=sum(row != first for row in counted), limit=0)
        verdict, host_words = judge_gates((changed,)), host_part("a step", host_s, fmean(step_s))
        return Judgement(
            verdict=replace(verdict, reason="; ".join(filter(None, (verdict.reason, host_words)))),
            what=f"decode step of {point.batch_size}",
            metrics=(
                Metric(name="expert_coverage", unit="", value=coverage, gate="exact"),
                Metric(name="step_s", unit="s", value=sum(step_s) / len(step_s), samples=tuple(step_s)),
            ),
            measured_s=sum(step_s) / len(step_s),
            repeat_error=repeat_error(step_s),
            detail=ExpertCoverageDetail(
                batch_size=point.batch_size,
                coverage=coverage,
                host_s=host_s,
            ),
        )


KIND = ExpertCoverageKind()
