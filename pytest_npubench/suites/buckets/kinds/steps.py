"""Latency steps at one bucket boundary: do the observed ones stand where the declared set says?

Prefill is timed at a length in the middle of bucket b, at b - 1, b and, where there is a larger bucket, b + 1. Within
a round all four are measured in shuffled order, so each round gives a paired ratio between neighbours. A jump between
two lengths is observed when the mean log ratio is beyond the tolerance with its whole interval, absent when the whole
interval lies inside the tolerance, and unclear otherwise.

A jump inside the bucket fails (a bucket nobody declared). A declared boundary without a jump passes and is said: a
larger bucket may cost the same (LENS, section 5.4.2).

Where the engine itself says what it pads to (vLLM), its boundaries are the declared ones; where it pads nothing,
latency rises with every token, and a stair is a jump between two lengths that are one token apart: from the middle of
a bucket to its end there is a slope, told as a figure.

Worked example: 192, 255, 256, 257 tokens take 10.0, 13.1, 13.2, 13.2 ms. Under a declared set x1.31 from 192 to 255
fails; where nothing is declared it is the slope, and no stair is found.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from statistics import fmean, stdev

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Case
from pytest_npubench.core.measurement import Request
from pytest_npubench.suites.buckets.kinds import BucketKind
from pytest_npubench.suites.buckets.plan import BucketPlan, boundaries, continuous_words, is_continuous
from pytest_npubench.suites.buckets.points import BucketPoint
from pytest_npubench.verdict import Verdict, VerdictKind
from pytest_npubench.verdict.result import Judgement, Metric

TOLERANCE = 0.10
CONFIDENCE = 0.99
STEP_VISIT_S = 0.01  # a jump of the usual size shows in few samples; predictions need the time more


class Jump(Enum):
    OBSERVED = "observed"
    ABSENT = "absent"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two neighbouring lengths: whether latency jumps from one to the other, by which factor, and whether a boundary is
    declared between them."""

    left: int
    right: int
    jump: Jump
    ratio: float
    declared: bool

    @property
    def next_to_each_other(self) -> bool:
        return self.right == self.left + 1

    def __str__(self) -> str:
        return f"{self.left} to {self.right}: x{self.ratio:.2f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsDetail:
    """Mean seconds by length, and each pair of neighbouring lengths as (left, right, jump, ratio). Of the lengths
    behind which a step was observed `extra` are those that nobody declared; `missing` are declared without a step, and
    at `inconclusive` ones the samples do not tell. Graphs have their times alone."""

    bucket: int
    lengths_s: Mapping[str, float]
    jumps: tuple[tuple[int, int, str, float], ...] = ()
    continuous: bool = False
    declared: tuple[int, ...] = ()
    observed: tuple[int, ...] = ()
    extra: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()
    inconclusive: tuple[int, ...] = ()


class StepsKind(BucketKind):
    name = "steps"
    axis = "bucket"

    def points(self, case: Case, plan: BucketPlan) -> tuple[BucketPoint, ...]:
        return tuple(_point(length) for length in lengths(plan.buckets, int(case.axis("bucket"))))

    def judge(self, case: Case, plan: BucketPlan, measured: Measured) -> Judgement:
        bucket = int(case.axis("bucket"))
        around = lengths(plan.buckets, bucket)
        means_s = {length: measured.round_means_s(_point(length).name) for length in around}
        edges, continuous = boundaries(plan, measured), is_continuous(plan, measured)
        pairs = [_pair(left, right, means_s, edges) for left, right in pairwise(around)]
        # between lengths that lie apart a slope is none of a bucket's doing
        tested = [pair for pair in pairs if pair.next_to_each_other] if continuous else pairs
        samples = measured.samples(_point(bucket).name)
        observed = [pair for pair in tested if pair.jump is Jump.OBSERVED]
        return Judgement(
            verdict=_of_slope(plan, pairs, tested, bucket) if continuous else _of_stair(pairs, bucket),
            what=f"prefill of {bucket} tokens",
            metrics=(Metric(name="prefill_s", unit="s", value=samples.mean_s, samples=samples.samples_s),),
            measured_s=samples.mean_s,
            detail=StepsDetail(
                bucket=bucket,
                lengths_s={str(length): measured.samples(_point(length).name).mean_s for length in around},
                jumps=tuple((pair.left, pair.right, pair.jump.value, pair.ratio) for pair in pairs),
                continuous=continuous,
                declared=tuple(edge for edge in edges if around[0] <= edge <= around[-1]),
                observed=tuple(pair.left for pair in observed),
                extra=tuple(pair.left for pair in observed if not pair.declared),
                missing=tuple(pair.left for pair in tested if pair.declared and pair.jump is Jump.ABSENT),
                inconclusive=tuple(pair.left for pair in tested if pair.jump is Jump.UNCLEAR),
            ),
        )


def lengths(buckets: Sequence[int], bucket: int) -> tuple[int, ...]:
    """Returns the middle of the bucket, b - 1, b, and b + 1 where a larger bucket holds it; ascending, none twice."""
    index = buckets.index(bucket)
    floor = buckets[index - 1] if index else 0
    beyond = (bucket + 1,) if bucket != buckets[-1] else ()
    return tuple(sorted({(floor + bucket + 1) // 2, max(bucket - 1, floor + 1), bucket, *beyond}))


def jump(left_s: Sequence[float], right_s: Sequence[float], tolerance: float = TOLERANCE) -> tuple[Jump, float]:
    """Whether latency jumps from one length to the next, from paired rounds, and the ratio right / left."""
    from pytest_npubench.stats.error import student_quantile

    logs = [math.log(right / left) for left, right in zip(left_s, right_s, strict=False)]
    mean = fmean(logs)
    if len(logs) < 2:
        return Jump.UNCLEAR, math.exp(mean)
    half = float(student_quantile((1 + CONFIDENCE) / 2, len(logs) - 1)) * stdev(logs) / math.sqrt(len(logs))
    limit = math.log1p(tolerance)
    if abs(mean) - half > limit:
        return Jump.OBSERVED, math.exp(mean)
    return (Jump.ABSENT if abs(mean) + half <= limit else Jump.UNCLEAR), math.exp(mean)


def _point(length: int) -> BucketPoint:
    request = Request(input_tokens=length, output_tokens=1)
    return BucketPoint(name=f"step/{length}", requests=(request,), visit_s=STEP_VISIT_S)


def _pair(left: int, right: int, means_s: dict[int, tuple[float, ...]], edges: Sequence[int]) -> Pair:
    observed, ratio = jump(means_s[left], means_s[right])
    return Pair(
        left=left, right=right, jump=observed, ratio=ratio, declared=any(left <= edge < right for edge in edges)
    )


def _of_stair(pairs: Sequence[Pair], bucket: int) -> Verdict:
    extra = [str(pair) for pair in pairs if pair.jump is Jump.OBSERVED and not pair.declared]
    if extra:
        return Verdict(
            kind=VerdictKind.FAILED,
            reason=f"latency jumps inside bucket {bucket}, where no boundary is declared: {'; '.join(extra)}",
        )
    edge = next((pair for pair in reversed(pairs) if pair.declared), None)
    if edge is None:
        return Verdict(kind=VerdictKind.PASSED, reason=f"flat inside {bucket}, the largest bucket")
    return Verdict(
        kind=VerdictKind.PASSED,
        reason=f"flat inside {bucket}; jump to the next bucket {edge.jump.value}: x{edge.ratio:.2f}",
    )


def _of_slope(plan: BucketPlan, pairs: Sequence[Pair], tested: Sequence[Pair], bucket: int) -> Verdict:
    """Nothing is declared: a stair that is there all the same fails, like one inside a declared bucket."""
    if stairs := [str(pair) for pair in tested if pair.jump is Jump.OBSERVED]:
        reason = f"a stair at {bucket} that {plan.runner.title} does not declare: {'; '.join(stairs)}"
        return Verdict(kind=VerdictKind.FAILED, reason=reason)
    unclear = [str(pair) for pair in tested if pair.jump is Jump.UNCLEAR]
    said = f"no stair found at {bucket}" + (f" by these samples ({'; '.join(unclear)} unclear)" if unclear else "")
    slopes = "; ".join(str(pair) for pair in pairs if pair not in tested)
    reason = f"{said}; {continuous_words(plan)}" + (f", slope {slopes}" if slopes else "")
    return Verdict(kind=VerdictKind.PASSED, reason=reason)


KIND = StepsKind()
