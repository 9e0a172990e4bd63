"""TTFT_b and TBT_b of one bucket from two end-to-end points (LENS, Eq. 14 and 15), and what compiling it took.

On an engine without buckets (vLLM on a CPU) the bucket is nominal: a length at which a slope is sampled, and the case
says so.

The case owns the move of the KV cache that leads into its bucket, and that of the largest bucket the campaign's peak of
device memory, where every bucket was profiled. There is no absolute limit on a time: a profile case passes once it is
measured, pure and finite. Later sessions are judged against accepted ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Case
from pytest_npubench.core.measurement import CacheState, CompileRecord, Phase
from pytest_npubench.suites.buckets.active import active_detail, is_settled
from pytest_npubench.suites.buckets.kinds import BucketKind
from pytest_npubench.suites.buckets.plan import BucketPlan, boundaries, continuous_words, is_continuous
from pytest_npubench.suites.buckets.points import BucketPoint, BucketVisit
from pytest_npubench.suites.buckets.profile_detail import ProfileDetail
from pytest_npubench.verdict import Verdict, VerdictKind, judge_gates
from pytest_npubench.verdict.result import GateKind, Judgement, Metric

COMPILE_MARGIN = 0.10  # one compile a session, and compilers search by the clock
MOVE_MARGIN = 0.05  # a copy of a millisecond, which differs more from process to process than a batch
PEAK_MARGIN = 0.02  # an allocator rounds up


class ProfileKind(BucketKind):
    name = "profile"
    axis = "bucket"

    def points(self, case: Case, plan: BucketPlan) -> tuple[BucketPoint, ...]:
        bucket = int(case.axis("bucket"))
        return (*_profile(plan, bucket), *(replace(move, beside=True) for move in plan.moves((bucket,))))

    def judge(self, case: Case, plan: BucketPlan, measured: Measured) -> Judgement:
        from pytest_npubench.predictors.compiler import PREDICTOR as COMPILER
        from pytest_npubench.predictors.two_point import count_cost
        from pytest_npubench.suites.buckets.binding import bindings
        from pytest_npubench.suites.buckets.energy import bucket_energy, energy_metrics
        from pytest_npubench.suites.buckets.estimated_binaries import estimated_profile
        from pytest_npubench.suites.buckets.price import price_metrics, token_prices
        from pytest_npubench.suites.buckets.profile_samples import bucket_binaries, lens_profile
        from pytest_npubench.suites.buckets.work import impossible_timing

        bucket = int(case.axis("bucket"))
        timing = lens_profile(plan, measured, (bucket,)).buckets[bucket]
        ttft_s, tbt_s = timing.ttft_s or 0.0, timing.tbt_s or 0.0  # both are there: one bucket set for both phases
        first, second = _profile(plan, bucket)
        low, high = (measured.samples(point.name) for point in (first, second))
        num_first = first.requests[0].output_tokens - 1
        steps = second.requests[0].output_tokens - 1 - num_first
        together = [row for row in measured.rounds if row.get(first.name) and row.get(second.name)]
        pairs = [[sum(row[point.name]) / len(row[point.name]) for point in (first, second)] for row in together]
        asked = COMPILER.name in plan.rivals
        estimated = estimated_profile(plan, measured.compiles, (bucket,))[0] if asked else None
        binaries = bucket_binaries(measured.compiles, bucket)
        planned = plan.profile_points((bucket,))
        samples = {item: point.samples_s for item, point in zip(planned, (low, high), strict=True)}
        cost = count_cost(binaries, samples, sessions=1)
        num_prefills = 1 if plan.service.prefill_shared else plan.batch_size
        verdict, continuous = judge_gates(()), is_continuous(plan, measured)
        if continuous:
            verdict = replace(verdict, reason=f"{verdict.reason}; {continuous_words(plan)}, bucket {bucket} is nominal")
        energy = bucket_energy(measured, first, second)
        price = token_prices(plan, first.requests[0].input_tokens, ttft_s=ttft_s, tbt_s=tbt_s)
        active = active_detail(plan, measured, (first.name, second.name))
        if active:
            verdict = replace(verdict, reason=f"{verdict.reason}; {active.words}")
        if reason := impossible_timing(plan, first.requests, timing):
            verdict = Verdict(kind=VerdictKind.INVALID, reason=reason)
        ttft = Metric(
            name="ttft_s",
            unit="s",
            value=ttft_s,
            samples=tuple((value - num_first * tbt_s) / num_prefills for value in low.samples_s),
        )
        tbt_samples_s = tuple((long - short) / steps for short, long in pairs)
        tbt = Metric(name="tbt_s", unit="s", value=tbt_s, samples=tbt_samples_s)
        return Judgement(
            verdict=verdict,
            what=f"TTFT of bucket {bucket}",
            metrics=(
                ttft,
                tbt,
                *_move_metric(plan, measured, bucket),
                *energy_metrics(energy),
                *price_metrics(price, ttft, tbt),
                *((_compile_metric(cost.compile_s, binaries),) if plan.service.compiles_buckets else ()),
                *(_peak_metric(plan, measured) if bucket == plan.buckets[-1] else ()),
            ),
            measured_s=ttft_s,
            repeat_error=None if timing.ttft_error_s is None else timing.ttft_error_s / ttft_s,
            detail=ProfileDetail(
                bucket=bucket,
                ttft_s=ttft_s,
                tbt_s=tbt_s,
                ttft_error_s=timing.ttft_error_s,
                tbt_error_s=timing.tbt_error_s,
                compile_cache=tuple(record.cache.value for record in binaries),
                cost=cost,
                points_s={point.name: measured.samples(point.name).mean_s for point in (first, second)},
                spread=high.relative_spread,
                continuous=continuous,
                declared=boundaries(plan, measured),
                estimated_ttft_s=estimated.buckets[bucket].ttft_s if estimated else None,
                estimated_tbt_s=estimated.buckets[bucket].tbt_s if estimated else None,
                active=active,
                energy=energy,
                price=price,
                binding=bindings(plan, measured, bucket, {Phase.PREFILL: ttft_s, Phase.DECODE: tbt_s}),
            ),
        )

    def settled(self, case: Case, plan: BucketPlan, measured: Measured) -> bool:
        return is_settled(plan, measured)


def _profile(plan: BucketPlan, bucket: int) -> tuple[BucketPoint, ...]:
    """Returns the bucket's two points, the shorter one first."""
    return tuple(plan.profile_point(point) for point in plan.profile_points((bucket,)))


def _has_run(plan: BucketPlan, measured: Measured, bucket: int) -> bool:
    """Whether both of its points have samples."""
    return all(any(row.get(point.name) for row in measured.rounds) for point in _profile(plan, bucket))


def _move_metric(plan: BucketPlan, measured: Measured, bucket: int) -> tuple[Metric, ...]:
    """Makes the metric of the KV cache's move from the next smaller bucket; none where no cache moves, in rounds of
    before, and where that bucket could not be had. Raises MeasurementError where the move alone failed."""
    tried = [
        point.name
        for point in plan.moves((bucket,))
        if any(row.get(point.name) for row in measured.rounds)
        or (point.name in measured.failures and point.move and _has_run(plan, measured, point.move[0]))
    ]
    return tuple(
        Metric(name="move_s", unit="s", value=one.median_s, samples=one.samples_s, margin=MOVE_MARGIN)
        for one in map(measured.samples, tried)
    )


def _peak_metric(plan: BucketPlan, measured: Measured) -> tuple[Metric, ...]:
    """Returns the most bytes of a device that the campaign had, which repeats as a counter does. None where nothing
    counts them, or not every bucket was profiled: what else ran decides on it."""
    if not all(_has_run(plan, measured, bucket) for bucket in plan.buckets):
        return ()
    longest = _profile(plan, plan.buckets[-1])[-1]
    visits = (visit for row in measured.visits(longest.name, BucketVisit) for visit in row)
    peaks_bytes = [visit.peak_bytes for visit in visits if visit.peak_bytes is not None]
    if not peaks_bytes:
        return ()
    return (Metric(name="peak_memory_bytes", unit="B", value=max(peaks_bytes), gate="exact", margin=PEAK_MARGIN),)


def _compile_metric(compile_s: float, binaries: Sequence[CompileRecord]) -> Metric:
    warm = any(record.cache is CacheState.WARM for record in binaries)
    gate: GateKind = "none" if warm else "ratio"
    return Metric(name="compile_s", unit="s", value=compile_s, margin=COMPILE_MARGIN, gate=gate)


KIND = ProfileKind()
