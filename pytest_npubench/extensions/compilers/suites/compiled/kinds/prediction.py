"""The binaries that a workload's batches touch, one for each bucket; what LENS makes of the estimates is shown and held
against nothing."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Case
from pytest_npubench.core.measurement import Phase
from pytest_npubench.extensions.compilers.compiled.runtime import TITLE
from pytest_npubench.extensions.compilers.suites.compiled.binaries import (
    Binaries,
    CompiledDetail,
    estimated,
    no_estimate,
)
from pytest_npubench.extensions.compilers.suites.compiled.plan import BinaryPoint, BinaryVisit, CompiledPlan
from pytest_npubench.extensions.compilers.suites.programs import WorkloadCases, failed, last_visit, refused, verdict
from pytest_npubench.suites.buckets.points import BucketPoint
from pytest_npubench.verdict.result import Judgement, Metric


class CompiledPredictionKind(WorkloadCases):
    name = "prediction"
    suite = "compiled"

    def points(self, case: Case, plan: CompiledPlan) -> tuple[BinaryPoint, ...]:
        return plan.binaries(plan.touched(str(case.axis("workload"))))

    def judge(self, case: Case, plan: CompiledPlan, measured: Measured) -> Judgement:
        workload, points = str(case.axis("workload")), self.points(case, plan)
        if reason := refused(points, measured):
            return failed(reason)
        binaries = {point: last_visit(measured, point, BinaryVisit) for point in points}
        estimates_s = batch_estimates_s(plan, binaries, plan.batches(workload))
        modules = {facts.module for facts in binaries.values()}
        problems = [] if len(modules) == len(points) else [f"{len(points)} binaries are {len(modules)} modules"]
        times = f"estimated E2E {sum(estimates_s):.3g} s, held against nothing" if estimates_s else no_estimate(plan)
        return Judgement(
            verdict=verdict(problems, [f"{TITLE}: {len(points)} binaries serve every batch; {times}"]),
            what=f"binaries of {workload}",
            metrics=(Metric(name="binaries", unit="", value=len(modules), gate="exact"),),
            detail=CompiledDetail(estimated_s=tuple(estimates_s)),
        )


def batch_estimates_s(plan: CompiledPlan, binaries: Binaries, batches: Sequence[BucketPoint]) -> list[float]:
    """Returns seconds of each drawn batch, by LENS from estimated TTFT_b and TBT_b (arXiv 2606.18042, Eq. 6 to 9); none
    where the compiler tells no cycles. What moves the cache is estimated too."""
    from pytest_npubench.predictors.compiler import PREDICTOR
    from pytest_npubench.predictors.profile import BucketProfile, BucketTiming
    from pytest_npubench.predictors.protocol import ProfileSamples

    estimates = {point: estimated(plan, point, facts) for point, facts in binaries.items()}
    times_s = {point: estimate.total_s for point, estimate in estimates.items() if estimate is not None}
    if len(times_s) < len(binaries):
        return []
    profile = BucketProfile(
        buckets={
            bucket: BucketTiming(
                ttft_s=times_s[BinaryPoint(phase=Phase.PREFILL, bucket=bucket)],
                tbt_s=times_s[BinaryPoint(phase=Phase.DECODE, bucket=bucket)],
            )
            for bucket in sorted({point.bucket for point in binaries if point.larger is None})
        },
        batch_size=plan.batch_size,
        transitions_s={point.larger: times_s[point] for point in binaries if point.larger is not None},
    )
    samples = ProfileSamples(samples_s={}, batch_size=plan.batch_size, finished="freeze", estimates=profile)
    fitted = PREDICTOR.fit(samples)
    return [fitted.predict(batch.requests) for batch in batches]


KIND = CompiledPredictionKind()
