"""The estimated stair from a bucket to the next."""

from __future__ import annotations

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Case
from pytest_npubench.core.measurement import Phase
from pytest_npubench.extensions.compilers.compiled.runtime import TITLE
from pytest_npubench.extensions.compilers.suites.compiled.binaries import (
    CompiledDetail,
    estimated,
    exact_metrics,
    no_estimate,
)
from pytest_npubench.extensions.compilers.suites.compiled.plan import BinaryPoint, BinaryVisit, CompiledPlan
from pytest_npubench.extensions.compilers.suites.programs import BucketCases, failed, last_visit, refused, verdict
from pytest_npubench.verdict.result import Judgement


class CompiledStepsKind(BucketCases):
    name = "steps"
    suite = "compiled"

    def points(self, case: Case, plan: CompiledPlan) -> tuple[BinaryPoint, ...]:
        return tuple(BinaryPoint(phase=Phase.PREFILL, bucket=bucket) for bucket in plan.edge(case))

    def judge(self, case: Case, plan: CompiledPlan, measured: Measured) -> Judgement:
        points = self.points(case, plan)
        if reason := refused(points, measured):
            return failed(reason)
        binaries = [last_visit(measured, point, BinaryVisit) for point in points]
        estimates = [estimated(plan, point, facts) for point, facts in zip(points, binaries, strict=True)]
        times_s = [estimate.total_s for estimate in estimates if estimate is not None]
        if len(times_s) > 1:
            jump = f"; the next bucket by the estimates x{times_s[1] / times_s[0]:.2f}"
        else:
            jump = ", the largest" if len(points) == 1 else f"; {no_estimate(plan)}"
        bucket = points[0].bucket
        return Judgement(
            verdict=verdict((), [f"{TITLE}: one binary for every length of bucket {bucket}{jump}"]),
            what=f"prefill binary of {bucket} tokens",
            metrics=exact_metrics(Phase.PREFILL.value, (("cycles", "cycles", binaries[0].cycles),)),
            detail=CompiledDetail(bucket=bucket, estimated_s=tuple(times_s)),
        )


KIND = CompiledStepsKind()
