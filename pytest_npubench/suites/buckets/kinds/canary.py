"""Canary kernels: is it the device and its driver, or what runs on them, that became slower?

One case for each kernel (engines.canary_kernels). They are measured in the same shuffled rounds as everything else of
the campaign, so they saw the same device at the same time. There is no limit on a time: a canary passes once measured,
and is compared with other sessions. No prediction rests on it. On vLLM they run in its process, in torch
(extensions/vllm/canaries.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Axes, Case
from pytest_npubench.engines.canary_kernels import KERNELS
from pytest_npubench.suites.buckets.kinds import BucketKind
from pytest_npubench.suites.buckets.plan import BucketPlan
from pytest_npubench.suites.buckets.points import BucketPoint, canary_name
from pytest_npubench.verdict import judge_gates
from pytest_npubench.verdict.result import Judgement, Metric

CANARY_VISIT_S = 0.05  # milliseconds a sample: six of them a round tell enough, predictions need the time more


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryDetail:
    kernel: str


def canary_points(*kernels: str, beside: bool = False) -> tuple[BucketPoint, ...]:
    """Returns a point for each of these kernels; `beside`: they are measured for a rival alone."""
    return tuple(
        BucketPoint(name=canary_name(kernel), kernel=kernel, visit_s=CANARY_VISIT_S, beside=beside)
        for kernel in kernels
    )


class CanaryKind(BucketKind):
    name = "canary"

    def axes(self, plan: BucketPlan) -> Iterable[Axes]:
        return ((("kernel", kernel),) for kernel in KERNELS)

    def points(self, case: Case, plan: BucketPlan) -> tuple[BucketPoint, ...]:
        return canary_points(str(case.axis("kernel")))

    def judge(self, case: Case, plan: BucketPlan, measured: Measured) -> Judgement:
        from pytest_npubench.stats.error import repeat_error

        (point,) = self.points(case, plan)
        samples = measured.samples(point.name)
        return Judgement(
            verdict=judge_gates(()),
            what=f"canary kernel {point.kernel}",
            metrics=(Metric(name="kernel_s", unit="s", value=samples.median_s, samples=samples.samples_s),),
            measured_s=samples.median_s,
            repeat_error=repeat_error(samples.samples_s),
            detail=CanaryDetail(kernel=str(case.axis("kernel"))),
        )


KIND = CanaryKind()
