"""The two-point profiler's mathematics: which points to measure, and a profile from their samples.

LENS (arXiv 2606.18042, Eq. 14 and 15) measures two output lengths l1 < l2 in each bucket. With T the decode steps of
each (l - 1; l in literal mode) and m the prefills in one E2E (the batch size N, 1 where the engine shares the prefill)

    TBT_b = (E2 - E1) / (T2 - T1)        TTFT_b = (E1 - T1 TBT_b) / m

Default points are l1 = 1, so that E1 = m TTFT_b, and l2 = 33, both with a prompt of b - l2 tokens: every step stays in
b.

Errors: with Var(E) = s^2 / n, Var(TBT_b) = (Var(E1) + Var(E2)) / (T2 - T1)^2, so a wider l2 is worth more than repeats.

Worked number: N = 4, l = (1, 33), E1 = 40 ms, E2 = 104 ms: TBT = 64 / 32 = 2 ms, TTFT = 40 / 4 = 10 ms. With s = 1 ms
and n = 8 rounds, the standard error of TBT is sqrt(2 / 8) / 32 = 0.0156 ms.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_npubench.core.buckets import check_buckets
from pytest_npubench.core.measurement import CompileRecord, CostRecord, Phase, Run, check_samples
from pytest_npubench.errors import ConfigError, ImpureProfileError, MeasurementError
from pytest_npubench.predictors.profile import BucketProfile, BucketTiming, PointError

DEFAULT_OUTPUT_TOKENS = 33
BOTH_PHASES = (Phase.PREFILL, Phase.DECODE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilePoint:
    """One E2E to measure: a full batch of equal requests. `phases` are those whose time it gives to its bucket."""

    bucket: int
    input_tokens: int
    output_tokens: int
    phases: tuple[Phase, ...] = BOTH_PHASES


def plan_points(
    buckets: Sequence[int],
    output_tokens: int = DEFAULT_OUTPUT_TOKENS,
    decode_buckets: Sequence[int] | None = None,
    first_output_tokens: int = 1,
) -> tuple[ProfilePoint, ...]:
    """Two points a bucket, in ascending order. output_tokens is l2, first_output_tokens l1.

    l2 shrinks where a bucket is too narrow for it. With decode_buckets the engine has a set for each phase, `buckets`
    being that of prefill: a bucket of prefill alone gets one point, one of decode alone gets two that time its steps
    only.

    Raises ConfigError naming the bucket in which no two points fit.
    """
    if output_tokens <= first_output_tokens:
        raise ConfigError(
            f"output_tokens is {output_tokens}; want at least {first_output_tokens + 1}, as the first point of a "
            f"bucket has {first_output_tokens}"
        )
    prefill = check_buckets(buckets)
    decode = prefill if decode_buckets is None else check_buckets(decode_buckets, "decode_buckets")
    lengths = first_output_tokens, output_tokens
    return tuple(point for bucket in sorted({*prefill, *decode}) for point in _pair(bucket, lengths, prefill, decode))


def check_pure(bucket: int, run: Run, phases: Sequence[Phase] = BOTH_PHASES) -> None:
    """Raise ImpureProfileError where a part of these phases, or a move of the cache, was outside the bucket."""
    for segment in run.segments:
        if segment.phase in phases and segment.bucket != bucket:
            raise ImpureProfileError(
                f"profile point of bucket {bucket}: {segment.num_steps} of {segment.phase.value} ran in bucket"
                f" {segment.bucket}; want every part in {bucket}"
            )
    for move in run.moves:
        raise ImpureProfileError(
            f"profile point of bucket {bucket}: the cache moved from {move.from_bucket} to {move.to_bucket};"
            " want no move"
        )


def fit(
    samples: Mapping[ProfilePoint, Sequence[float]],
    batch_size: int = 1,
    prefill_shared: bool = False,
    literal: bool = False,
    transitions_s: Mapping[int, float] | None = None,
) -> BucketProfile:
    """Returns the profile from E2E samples in seconds of each point, all measured at batch_size.

    `literal` counts the steps as the predictor will. Timings know their errors where a point has two samples or more.
    Raises MeasurementError for samples that cannot be used, and where a TBT or TTFT comes out at 0 or below;
    ConfigError for points that do not make a profile.
    """
    if batch_size < 1:
        raise ConfigError(f"batch_size is {batch_size}; want at least 1")
    by_bucket: dict[int, list[_Estimate]] = {}
    for point, samples_s in samples.items():
        by_bucket.setdefault(point.bucket, []).append(_estimate(point, samples_s, literal))
    num_prefills = 1 if prefill_shared else batch_size
    return BucketProfile(
        buckets={bucket: _timing(bucket, estimates, num_prefills) for bucket, estimates in by_bucket.items()},
        batch_size=batch_size,
        prefill_shared=prefill_shared,
        fitted_literal=literal,
        transitions_s=transitions_s,
    )


def count_cost(compiles: Sequence[CompileRecord], samples: Mapping[Any, Sequence[float]], sessions: int) -> CostRecord:
    """What the profile cost. repeats are the samples of the point that has most."""
    compile_s = sum(record.compile_s for record in compiles)
    measure_s = sum(sum(values) for values in samples.values())
    return CostRecord(
        sessions=sessions,
        binaries=len(compiles),
        compile_s=compile_s,
        points=len(samples),
        repeats=max(map(len, samples.values()), default=0),
        measure_s=measure_s,
        total_s=compile_s + measure_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Estimate:
    """The E2E of one point: num_steps decode steps, value and variance from num_samples samples."""

    point: ProfilePoint
    num_steps: int
    value_s: float
    variance_s2: float | None
    num_samples: int


def _pair(
    bucket: int, lengths: tuple[int, int], prefill: Sequence[int], decode: Sequence[int]
) -> tuple[ProfilePoint, ...]:
    """Returns a prompt of b - l2 tokens in bucket b, whose KV cache runs from b - l2 + 1 to at most b."""
    if bucket not in decode:
        return (ProfilePoint(bucket=bucket, input_tokens=bucket, output_tokens=1, phases=(Phase.PREFILL,)),)
    phases = BOTH_PHASES if bucket in prefill else (Phase.DECODE,)
    neighbours = {*prefill, *decode} if bucket in prefill else decode
    floor = max((other for other in neighbours if other < bucket), default=0)
    first, longest = lengths[0], min(lengths[1], bucket - floor - 1)
    input_tokens = min(bucket - longest, prefill[-1])
    if longest <= first or input_tokens < floor:
        raise ConfigError(
            f"bucket {bucket}: no two points fit between it and the bucket below, {floor}, with prompts of at most"
            f" {prefill[-1]} tokens; want buckets at least {first + 2} apart, each within reach of a prompt"
        )
    return tuple(
        ProfilePoint(bucket=bucket, input_tokens=input_tokens, output_tokens=length, phases=phases)
        for length in (first, longest)
    )


def _estimate(point: ProfilePoint, samples_s: Sequence[float], literal: bool) -> _Estimate:
    name = f"bucket {point.bucket}, prompt of {point.input_tokens}, output of {point.output_tokens} tokens"
    values = tuple(float(value) for value in samples_s)  # arrays are welcome
    check_samples(name, values)
    num = len(values)
    return _Estimate(
        point=point,
        num_steps=point.output_tokens if literal else point.output_tokens - 1,
        value_s=statistics.fmean(values),
        variance_s2=statistics.variance(values) / num if num > 1 else None,
        num_samples=num,
    )


def _timing(bucket: int, estimates: Sequence[_Estimate], num_prefills: int) -> BucketTiming:
    phases = {phase for estimate in estimates for phase in estimate.point.phases}
    if Phase.DECODE in phases:
        first, second = _pair_of(bucket, estimates)
        return _two_point_timing(first, second, num_prefills, Phase.PREFILL in phases)
    if len(estimates) != 1 or estimates[0].num_steps:
        raise ConfigError(f"bucket {bucket}: a bucket of prefill alone wants one point, without a decode step")
    ttft_s = estimates[0].value_s / num_prefills
    if ttft_s <= 0:
        raise MeasurementError(f"bucket {bucket}: TTFT is {ttft_s:.6g} s; want more than 0: measure more rounds")
    return BucketTiming(ttft_s=ttft_s, errors=_errors([(estimates[0], 1.0 / num_prefills, 0.0)]))


def _pair_of(bucket: int, estimates: Sequence[_Estimate]) -> tuple[_Estimate, _Estimate]:
    ordered = sorted(estimates, key=lambda estimate: estimate.num_steps)
    if len(ordered) != 2 or ordered[0].num_steps == ordered[1].num_steps:
        lengths = [estimate.point.output_tokens for estimate in ordered]
        raise ConfigError(f"bucket {bucket}: points with outputs of {lengths} tokens; want two different ones")
    if ordered[0].point.input_tokens != ordered[1].point.input_tokens:
        raise ConfigError(f"bucket {bucket}: two points with different prompts; want one prompt length")
    return ordered[0], ordered[1]


def _two_point_timing(first: _Estimate, second: _Estimate, num_prefills: int, with_ttft: bool) -> BucketTiming:
    """Eq. 15, and the derivatives of both times by either E2E."""
    extra_steps = second.num_steps - first.num_steps
    tbt_s = (second.value_s - first.value_s) / extra_steps
    ttft_s = (first.value_s - first.num_steps * tbt_s) / num_prefills
    for name, value in (("TBT", tbt_s), ("TTFT", ttft_s if with_ttft else None)):
        if value is not None and value <= 0:
            raise MeasurementError(
                f"bucket {first.point.bucket}: {name} is {value:.6g} s, from E2E {first.value_s:.6g} s with"
                f" {first.num_steps} decode steps and {second.value_s:.6g} s with {second.num_steps}; want more than 0:"
                " measure more rounds, or a larger second output length"
            )
    ttft_share = 1.0 / (extra_steps * num_prefills) if with_ttft else 0.0
    errors = _errors(
        [
            (first, second.num_steps * ttft_share, -1.0 / extra_steps),
            (second, -first.num_steps * ttft_share, 1.0 / extra_steps),
        ]
    )
    return BucketTiming(ttft_s=ttft_s if with_ttft else None, tbt_s=tbt_s, errors=errors)


def _errors(parts: Sequence[tuple[_Estimate, float, float]]) -> tuple[PointError, ...]:
    """One error a point with its weights in TTFT and TBT; none at all where a point has a single sample."""
    return tuple(
        PointError(
            variance_s2=estimate.variance_s2,
            num_samples=estimate.num_samples,
            ttft_weight=ttft_weight,
            tbt_weight=tbt_weight,
        )
        for estimate, ttft_weight, tbt_weight in parts
        if estimate.variance_s2 is not None and all(part[0].variance_s2 is not None for part in parts)
    )
