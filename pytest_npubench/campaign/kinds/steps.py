"""Latency steps at one bucket boundary: do the observed ones stand where the declared set says?

Prefill is timed at a length in the middle of bucket b, at b - 1, b and, where there is a larger bucket, b + 1. Within
a round all four are measured in shuffled order, so each round gives a paired ratio between neighbours. A jump between
two lengths is observed when the mean log ratio is beyond the tolerance with its whole interval, absent when the whole
interval lies inside the tolerance, and unclear otherwise.

A jump inside the bucket fails (a bucket nobody declared). A declared boundary without a jump passes and is said: a
larger bucket may cost the same (LENS, section 5.4.2).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from enum import Enum
from itertools import pairwise
from statistics import fmean, stdev

from pytest_npubench.campaign.plan import Plan
from pytest_npubench.campaign.points import Measured, Point
from pytest_npubench.case import Axes, Case
from pytest_npubench.measurement import Request
from pytest_npubench.result import Judgement, Metric
from pytest_npubench.stats.error import student_quantile
from pytest_npubench.verdict import Verdict, VerdictKind

TOLERANCE = 0.10
CONFIDENCE = 0.99
STEP_VISIT_S = 0.05  # a jump of the usual size shows in few samples; predictions need the time more


class Jump(Enum):
    OBSERVED = "observed"
    ABSENT = "absent"
    UNCLEAR = "unclear"


class StepsKind:
    name = "steps"
    suite = "buckets"

    def axes(self, plan: Plan) -> Iterable[Axes]:
        return ((("bucket", bucket),) for bucket in plan.size.buckets)

    def points(self, case: Case, plan: Plan) -> tuple[Point, ...]:
        return tuple(_point(length) for length in lengths(plan.buckets, int(case.axis("bucket"))))

    def judge(self, case: Case, plan: Plan, measured: Measured) -> Judgement:
        bucket = int(case.axis("bucket"))
        around = lengths(plan.buckets, bucket)
        means_s = {length: measured.round_means_s(_point(length).name) for length in around}
        jumps = [(left, right, *jump(means_s[left], means_s[right])) for left, right in pairwise(around)]
        inside = [
            f"{left} to {right}: x{ratio:.2f}"
            for left, right, kind, ratio in jumps
            if kind is Jump.OBSERVED and right <= bucket
        ]
        at_edge = next(((kind, ratio) for left, _, kind, ratio in jumps if left == bucket), None)
        samples = measured.samples(_point(bucket).name)
        return Judgement(
            verdict=_verdict(inside, at_edge, bucket),
            what=f"prefill of {bucket} tokens",
            metrics=(Metric(name="prefill_s", unit="s", value=samples.mean_s, samples=samples.samples_s),),
            measured_s=samples.mean_s,
            detail={
                "bucket": bucket,
                "lengths_s": {str(length): measured.samples(_point(length).name).mean_s for length in around},
                "jumps": [[left, right, kind.value, ratio] for left, right, kind, ratio in jumps],
            },
        )

    def settled(self, case: Case, plan: Plan, measured: Measured) -> bool:
        return True


def lengths(buckets: Sequence[int], bucket: int) -> tuple[int, ...]:
    """The middle of the bucket, b - 1, b, and b + 1 where a larger bucket holds it; ascending, none twice."""
    index = buckets.index(bucket)
    floor = buckets[index - 1] if index else 0
    beyond = (bucket + 1,) if bucket != buckets[-1] else ()
    return tuple(sorted({(floor + bucket + 1) // 2, max(bucket - 1, floor + 1), bucket, *beyond}))


def jump(left_s: Sequence[float], right_s: Sequence[float], tolerance: float = TOLERANCE) -> tuple[Jump, float]:
    """Whether latency jumps from one length to the next, from paired rounds, and the ratio right / left."""
    logs = [math.log(right / left) for left, right in zip(left_s, right_s, strict=False)]
    mean = fmean(logs)
    if len(logs) < 2:
        return Jump.UNCLEAR, math.exp(mean)
    half = float(student_quantile((1 + CONFIDENCE) / 2, len(logs) - 1)) * stdev(logs) / math.sqrt(len(logs))
    limit = math.log1p(tolerance)
    if abs(mean) - half > limit:
        return Jump.OBSERVED, math.exp(mean)
    return (Jump.ABSENT if abs(mean) + half <= limit else Jump.UNCLEAR), math.exp(mean)


def _point(length: int) -> Point:
    request = Request(input_tokens=length, output_tokens=1)
    return Point(name=f"step/{length}", requests=(request,), visit_s=STEP_VISIT_S)


def _verdict(inside: list[str], edge: tuple[Jump, float] | None, bucket: int) -> Verdict:
    if inside:
        return Verdict(
            kind=VerdictKind.FAILED,
            reason=f"latency jumps inside bucket {bucket}, where no boundary is declared: {'; '.join(inside)}",
        )
    if edge is None:
        return Verdict(kind=VerdictKind.PASSED, reason=f"flat inside {bucket}, the largest bucket")
    kind, ratio = edge
    return Verdict(
        kind=VerdictKind.PASSED,
        reason=f"flat inside {bucket}; jump to the next bucket {kind.value}: x{ratio:.2f}",
    )


KIND = StepsKind()
