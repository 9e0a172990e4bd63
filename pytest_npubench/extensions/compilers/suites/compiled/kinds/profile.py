"""The binaries of a bucket, and whether all that is loaded with it fits the device's memory."""

from __future__ import annotations

from dataclasses import replace

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Case
from pytest_npubench.core.measurement import Phase
from pytest_npubench.extensions.compilers.compiled.runtime import TITLE
from pytest_npubench.extensions.compilers.suites.compiled.binaries import (
    FEW_BYTES,
    CompiledDetail,
    StepDetail,
    estimated,
    exact_metrics,
    need_bytes,
    no_estimate,
    step_cache_bytes,
)
from pytest_npubench.extensions.compilers.suites.compiled.plan import BinaryPoint, BinaryVisit, CompiledPlan
from pytest_npubench.extensions.compilers.suites.programs import (
    BucketCases,
    failed,
    fit_words,
    gigabytes,
    last_visit,
    refused,
    verdict,
)
from pytest_npubench.verdict.result import Judgement, Metric


class CompiledProfileKind(BucketCases):
    name = "profile"
    suite = "compiled"

    def points(self, case: Case, plan: CompiledPlan) -> tuple[BinaryPoint, ...]:
        return plan.binaries(plan.up_to(int(case.axis("bucket"))))

    def judge(self, case: Case, plan: CompiledPlan, measured: Measured) -> Judgement:
        bucket, points = int(case.axis("bucket")), self.points(case, plan)
        if reason := refused(points, measured):
            return failed(reason)
        binaries = {point: last_visit(measured, point, BinaryVisit) for point in points}
        steps = {phase: binaries[BinaryPoint(phase=phase, bucket=bucket)] for phase in Phase}
        needed_bytes, room_bytes = need_bytes(plan, binaries), plan.spec.device_memory_bytes
        too_much, fits = fit_words(needed_bytes, room_bytes)
        caches = step_cache_bytes(plan, bucket)
        problems = [*(text for phase, facts in steps.items() if (text := _wrong(phase, facts, caches))), *too_much]
        details = {phase.value: _detail(plan, phase, bucket, facts) for phase, facts in steps.items()}
        return Judgement(
            verdict=verdict(problems, [f"{TITLE}: {fits} with all smaller buckets", _times(plan, details)]),
            what=f"binaries of bucket {bucket}",
            metrics=(
                *(metric for phase, facts in steps.items() for metric in _metrics(phase.value, facts)),
                Metric(
                    name="compile_ratio",
                    unit="x",
                    value=sum(facts.compile_cpu_s for facts in steps.values())
                    / sum(facts.reference_cpu_s for facts in steps.values()),
                    gate="none",  # one sample a session decides nothing: it is shown and kept
                ),
                Metric(name="need_bytes", unit="B", value=needed_bytes, gate="exact"),
            ),
            detail=CompiledDetail(bucket=bucket, steps=details, need_bytes=needed_bytes, room_bytes=room_bytes),
        )


def _times(plan: CompiledPlan, details: dict[str, StepDetail]) -> str:
    ttft_s, tbt_s = (details[phase.value].estimated_s for phase in (Phase.PREFILL, Phase.DECODE))
    if ttft_s is None or tbt_s is None:
        return no_estimate(plan)
    return f"estimated TTFT {1e3 * ttft_s:.3g} ms, TBT {1e3 * tbt_s:.3g} ms"


def _detail(plan: CompiledPlan, phase: Phase, bucket: int, facts: BinaryVisit) -> StepDetail:
    detail = StepDetail(
        cycles=facts.cycles,
        code_bytes=facts.code_bytes,
        temporary_bytes=facts.temporary_bytes,
        cache_copies=facts.cache_copies,
        compile_cpu_s=facts.compile_cpu_s,
    )
    estimate = estimated(plan, BinaryPoint(phase=phase, bucket=bucket), facts)
    if estimate is None:
        return replace(detail, unpriced=(no_estimate(plan),))
    return replace(
        detail,
        estimated_s=estimate.total_s,
        kernels_s=estimate.kernels_s,
        collectives_s=estimate.collectives_s,
        bound_s=estimate.bound_s,
        unpriced=estimate.unpriced,
        assumed=estimate.assumed,
        vector_s=estimate.vector_s,
    )


def _metrics(step: str, facts: BinaryVisit) -> tuple[Metric, ...]:
    figures = (
        ("cycles", "cycles", facts.cycles),
        ("kernel_cycles", "cycles", facts.kernel_cycles),
        ("code_bytes", "B", facts.code_bytes),
        ("temporary_bytes", "B", facts.temporary_bytes),
        ("cache_copies", "", facts.cache_copies),
    )
    return exact_metrics(step, figures)


def _wrong(phase: Phase, facts: BinaryVisit, caches: float) -> str:
    """What a step does that it should not; empty where it is one module, writes in place and copies nothing. `caches`:
    the bytes of the bucket's, whether they were donated or not."""
    problems = []
    copied = max(caches, facts.donated_bytes) - facts.aliased_bytes
    if facts.aliased_bytes < caches or copied > FEW_BYTES:
        problems.append(f"{gigabytes(copied)} of caches and donated buffers are not written in place")
    if facts.modules > 1:
        problems.append(f"lowers to {facts.modules:.0f} modules for the same bucket: a request is compiled into it")
    if facts.cache_copies:
        share = f", {facts.copy_cycles / facts.cycles:.0%} of the cycles" if facts.cycles else ""
        problems.append(f"{facts.cache_copies:.0f} copies of a layer's keys or values{share}")
    return f"{phase.value}: {', '.join(problems)}" if problems else ""


KIND = CompiledProfileKind()
