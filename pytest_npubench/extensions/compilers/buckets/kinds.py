"""The kinds of bucket cases on a compiler. Ids and axes are those of a device; what is behind them differs.

profile     the binaries of a bucket, and whether all that is loaded with it fits the device's memory
steps       the estimated stair from a bucket to the next
prediction  the binaries that a workload's batches touch, one for each bucket; what LENS makes of the estimates is shown
            and held against nothing
mean_error, canary   nothing runs, so there is nothing to measure

A case fails where a binary does not compile or fit, is another module for another request, where a cache that was
donated is copied, or where a whole layer's keys or values are. Cycles and bytes repeat exactly, so any change of them
is one (verdict/exact.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.protocol import CaseKind
from pytest_npubench.core.case import Axes, Case
from pytest_npubench.core.measurement import Phase
from pytest_npubench.errors import MeasurementError
from pytest_npubench.extensions.compilers.buckets.plan import INTEL, BinaryPoint, BinaryVisit, CompiledPlan
from pytest_npubench.extensions.compilers.compiled.runtime import TITLE
from pytest_npubench.verdict import Verdict, VerdictKind
from pytest_npubench.verdict.result import Judgement, Metric

if TYPE_CHECKING:
    from pytest_npubench.engines.binary_estimate import Estimate

REFUSED = ("does not compile", "not tried: ")
"""What a compiler said of a program; any other reason is one of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDetail:
    """One binary of a bucket: estimated seconds and their parts (vector_s: estimate.py), the roofline, and what the
    compiler counted. No seconds where it tells no cycles."""

    estimated_s: float | None = None
    kernels_s: float | None = None
    collectives_s: float | None = None
    bound_s: float | None = None
    cycles: float | None
    code_bytes: float | None
    temporary_bytes: float | None
    cache_copies: float
    compile_cpu_s: float
    unpriced: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    vector_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledDetail:
    """`steps` by phase. need_bytes: weights, the caches of this bucket and all smaller ones, their code, and the
    largest temporary; room_bytes: the device's memory, None where the hardware file has none. A prediction has its
    estimates of whole batches instead."""

    bucket: int | None = None
    steps: Mapping[str, StepDetail] | None = None
    need_bytes: float | None = None
    room_bytes: float | None = None
    estimated_s: tuple[float, ...] = ()


class CompiledKind:
    """What the kinds have in common: the axes of the kind whose place they take."""

    suite = "buckets"

    def __init__(self, kind: CaseKind[Any]) -> None:
        self.name = kind.name
        self._kind = kind

    def axes(self, plan: CompiledPlan) -> Iterable[Axes]:
        return self._kind.axes(plan)

    def points(self, case: Case, plan: CompiledPlan) -> tuple[BinaryPoint, ...]:
        return ()

    def judge(self, case: Case, plan: CompiledPlan, measured: Measured) -> Judgement:
        reason = f"{TITLE}: {self.name} has nothing to measure"
        return Judgement(verdict=Verdict(kind=VerdictKind.INCONCLUSIVE, reason=reason), engine=plan.engine)

    def settled(self, case: Case, plan: CompiledPlan, measured: Measured) -> bool:
        return True


class CompiledProfileKind(CompiledKind):
    def points(self, case: Case, plan: CompiledPlan) -> tuple[BinaryPoint, ...]:
        return plan.binaries(plan.up_to(int(case.axis("bucket"))))

    def judge(self, case: Case, plan: CompiledPlan, measured: Measured) -> Judgement:
        bucket = int(case.axis("bucket"))
        if reason := refused(self.points(case, plan), measured):
            return failed(plan, reason)
        found = {point: _facts(measured, point) for point in self.points(case, plan)}
        steps = {phase: found[BinaryPoint(phase=phase, bucket=bucket)] for phase in Phase}
        need = need_bytes(plan, found)
        room = plan.spec.device_memory_bytes
        problems = [
            *(text for phase, facts in steps.items() if (text := _wrong(phase, facts))),
            *(
                [f"{gigabytes(need)} are more than a device's {gigabytes(room)}"]
                if room is not None and need > room
                else []
            ),
        ]
        details = {phase.value: _detail(plan, phase, bucket, facts) for phase, facts in steps.items()}
        fits = f"{gigabytes(need)} of {gigabytes(room)}" if room is not None else f"{gigabytes(need)} needed"
        ttft_s, tbt_s = (details[phase.value].estimated_s for phase in (Phase.PREFILL, Phase.DECODE))
        times = no_estimate(plan)
        if ttft_s is not None and tbt_s is not None:
            times = f"estimated TTFT {1e3 * ttft_s:.3g} ms, TBT {1e3 * tbt_s:.3g} ms"
        words = f"{TITLE}: {fits} with all smaller buckets; {times}"
        return Judgement(
            verdict=Verdict(
                kind=VerdictKind.FAILED if problems else VerdictKind.PASSED, reason="; ".join([*problems, words])
            ),
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
                Metric(name="need_bytes", unit="B", value=need, gate="exact"),
            ),
            engine=plan.engine,
            detail=CompiledDetail(bucket=bucket, steps=details, need_bytes=need, room_bytes=room),
        )


class CompiledStepsKind(CompiledKind):
    def points(self, case: Case, plan: CompiledPlan) -> tuple[BinaryPoint, ...]:
        index = plan.buckets.index(int(case.axis("bucket")))
        return tuple(BinaryPoint(phase=Phase.PREFILL, bucket=bucket) for bucket in plan.buckets[index : index + 2])

    def judge(self, case: Case, plan: CompiledPlan, measured: Measured) -> Judgement:
        points = self.points(case, plan)
        if reason := refused(points, measured):
            return failed(plan, reason)
        found = [_facts(measured, point) for point in points]
        estimates = [_estimated(plan, point, facts) for point, facts in zip(points, found, strict=True)]
        times = [one.total_s for one in estimates if one is not None]
        flat = f"{TITLE}: one binary for every length of bucket {points[0].bucket}"
        jump = f"; the next bucket by the estimates x{times[1] / times[0]:.2f}" if len(times) > 1 else ""
        jump = jump or (", the largest" if len(points) == 1 else f"; {no_estimate(plan)}")
        return Judgement(
            verdict=Verdict(kind=VerdictKind.PASSED, reason=flat + jump),
            what=f"prefill binary of {points[0].bucket} tokens",
            metrics=_told(Phase.PREFILL.value, (("cycles", "cycles", found[0].cycles),)),
            engine=plan.engine,
            detail=CompiledDetail(bucket=points[0].bucket, estimated_s=tuple(times)),
        )


class CompiledPredictionKind(CompiledKind):
    def points(self, case: Case, plan: CompiledPlan) -> tuple[BinaryPoint, ...]:
        return plan.binaries(plan.touched(plan.draws(str(case.axis("workload")))))

    def judge(self, case: Case, plan: CompiledPlan, measured: Measured) -> Judgement:
        points, batches = self.points(case, plan), plan.draws(str(case.axis("workload")))
        if reason := refused(points, measured):
            return failed(plan, reason)
        found = {point: _facts(measured, point) for point in points}
        estimates = batch_estimates_s(plan, found, batches)
        modules = {facts.module for facts in found.values()}
        problems = [] if len(modules) == len(points) else [f"{len(points)} binaries are {len(modules)} modules"]
        times = f"estimated E2E {sum(estimates):.3g} s, held against nothing" if estimates else no_estimate(plan)
        words = f"{TITLE}: {len(points)} binaries serve every batch; {times}"
        return Judgement(
            verdict=Verdict(
                kind=VerdictKind.FAILED if problems else VerdictKind.PASSED, reason="; ".join([*problems, words])
            ),
            what=f"binaries of {case.axis('workload')}",
            metrics=(Metric(name="binaries", unit="", value=len(modules), gate="exact"),),
            engine=plan.engine,
            detail=CompiledDetail(estimated_s=tuple(estimates)),
        )


KINDS: Mapping[str, type[CompiledKind]] = {
    "profile": CompiledProfileKind,
    "steps": CompiledStepsKind,
    "prediction": CompiledPredictionKind,
}


def kind_for(kind: CaseKind[Any]) -> CaseKind[Any]:
    """The kind that stands in `kind`'s place."""
    return KINDS.get(kind.name, CompiledKind)(kind)


def need_bytes(plan: CompiledPlan, found: Mapping[BinaryPoint, BinaryVisit]) -> float:
    """Of each device with all of these binaries loaded: weights once, the caches of every bucket, all code, and the
    largest temporary, since steps run one after the other."""
    steps = {point: facts for point, facts in found.items() if point.larger is None}
    decodes = [facts for point, facts in steps.items() if point.phase is Phase.DECODE]
    weights = max(facts.argument_bytes - facts.donated_bytes for facts in steps.values())
    return (
        weights
        + sum(facts.donated_bytes for facts in decodes)
        + max(facts.temporary_bytes or 0.0 for facts in found.values())
        + sum(facts.code_bytes or 0.0 for facts in found.values())
    )


def batch_estimates_s(
    plan: CompiledPlan, found: Mapping[BinaryPoint, BinaryVisit], batches: Sequence[Any]
) -> list[float]:
    """Seconds of each drawn batch, by LENS from estimated TTFT_b and TBT_b (arXiv 2606.18042, Eq. 6 to 9); none where
    the compiler tells no cycles. What moves the cache is estimated too."""
    from pytest_npubench.predictors.compiler import PREDICTOR
    from pytest_npubench.predictors.profile import BucketProfile, BucketTiming
    from pytest_npubench.predictors.protocol import ProfileSamples

    estimates = {point: _estimated(plan, point, facts) for point, facts in found.items()}
    times = {point: one.total_s for point, one in estimates.items() if one is not None}
    if len(times) < len(found):
        return []
    buckets = sorted({point.bucket for point in found if point.larger is None})
    profile = BucketProfile(
        buckets={
            bucket: BucketTiming(
                ttft_s=times[BinaryPoint(phase=Phase.PREFILL, bucket=bucket)],
                tbt_s=times[BinaryPoint(phase=Phase.DECODE, bucket=bucket)],
            )
            for bucket in buckets
        },
        batch_size=plan.batch_size,
        transitions_s={point.larger: times[point] for point in found if point.larger is not None},
    )
    samples = ProfileSamples(samples_s={}, batch_size=plan.batch_size, finished="freeze", estimates=profile)
    fitted = PREDICTOR.fit(samples)
    return [fitted.predict(batch.requests) for batch in batches]


def no_estimate(plan: CompiledPlan) -> str:
    from pytest_npubench.engines.binary_estimate import NO_CYCLES, NO_ESTIMATE

    return NO_CYCLES if plan.spec.family == INTEL else NO_ESTIMATE


def _estimated(plan: CompiledPlan, point: BinaryPoint, facts: BinaryVisit) -> Estimate | None:
    from pytest_npubench.engines.binary_estimate import estimate

    if facts.cycles is None:
        return None
    request = plan.request(point)
    return estimate(facts, plan.spec, request.shape, point.phase, point.bucket)


def _detail(plan: CompiledPlan, phase: Phase, bucket: int, facts: BinaryVisit) -> StepDetail:
    told = StepDetail(
        cycles=facts.cycles,
        code_bytes=facts.code_bytes,
        temporary_bytes=facts.temporary_bytes,
        cache_copies=facts.cache_copies,
        compile_cpu_s=facts.compile_cpu_s,
    )
    found = _estimated(plan, BinaryPoint(phase=phase, bucket=bucket), facts)
    if found is None:
        return replace(told, unpriced=(no_estimate(plan),))
    return replace(
        told,
        estimated_s=found.total_s,
        kernels_s=found.kernels_s,
        collectives_s=found.collectives_s,
        bound_s=found.bound_s,
        unpriced=found.unpriced,
        assumed=found.assumed,
        vector_s=found.vector_s,
    )


def _metrics(step: str, facts: BinaryVisit) -> tuple[Metric, ...]:
    figures = (
        ("cycles", "cycles", facts.cycles),
        ("kernel_cycles", "cycles", facts.kernel_cycles),
        ("code_bytes", "B", facts.code_bytes),
        ("temporary_bytes", "B", facts.temporary_bytes),
        ("cache_copies", "", facts.cache_copies),
    )
    return _told(step, figures)


def _told(step: str, figures: Sequence[tuple[str, str, float | None]]) -> tuple[Metric, ...]:
    """Those that the compiler told, exact: name, unit and value."""
    return tuple(
        Metric(name=f"{step}_{name}", unit=unit, value=value, gate="exact")
        for name, unit, value in figures
        if value is not None
    )


def _wrong(phase: Phase, facts: BinaryVisit) -> str:
    """What a step does that it should not; empty where it is one module, writes in place and copies nothing."""
    found = []
    if facts.aliased_bytes < facts.donated_bytes:
        found.append(
            f"{gigabytes(facts.donated_bytes - facts.aliased_bytes)} of donated buffers are not written in place"
        )
    if facts.modules > 1:
        found.append(f"lowers to {facts.modules:.0f} modules for the same bucket: a request is compiled into it")
    if facts.cache_copies:
        share = f", {facts.copy_cycles / facts.cycles:.0%} of the cycles" if facts.cycles else ""
        found.append(f"{facts.cache_copies:.0f} copies of a layer's keys or values{share}")
    return f"{phase.value}: {', '.join(found)}" if found else ""


def refused(points: Iterable[BinaryPoint], measured: Measured) -> str:
    """The compiler's reason for the first of these that it refused; empty where it took them all."""
    reasons = (measured.failures.get(point.name, "") for point in points)
    return next((reason for reason in reasons if any(words in reason for words in REFUSED)), "")


def failed(plan: CompiledPlan, reason: str) -> Judgement:
    return Judgement(verdict=Verdict(kind=VerdictKind.FAILED, reason=reason), engine=plan.engine)


def _facts(measured: Measured, point: BinaryPoint) -> BinaryVisit:
    """Raises MeasurementError with the reason where it could not be had."""
    visits = measured.visits(point.name, BinaryVisit)
    if not visits or not visits[-1]:
        raise MeasurementError(f"{point.name}: nothing is on record")
    return visits[-1][-1]


def gigabytes(number: float) -> str:
    return f"{number / 1e9:.2f} GB"
