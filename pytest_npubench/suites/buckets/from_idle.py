"""What the first steps of a device that had nothing to do take longer than those of a busy one.

A LENS point is served without a pause, so that nothing of it is in a profile; of a load that leaves pauses it is in the
TTFT of whoever ends one, and in the steps behind. It grows with the pause: caches go cold, threads sleep, clocks fall.
So the point's requests, few and short, come at the load's rate: the pauses of Poisson arrivals are distributed alike
whatever is served between them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

from pytest_npubench.core.measurement import Request
from pytest_npubench.errors import MeasurementError
from pytest_npubench.predictors.profile import BucketTiming
from pytest_npubench.serving.metrics import RequestRecord
from pytest_npubench.suites.buckets.plan import BucketPlan
from pytest_npubench.suites.buckets.points import BucketPoint, idle_name

NUM_REQUESTS = 8
NUM_TOKENS = 16  # of each: on a CPU of two cores the 16th step takes 10 % longer, behind the first with 130 %


def idle_point(plan: BucketPlan, workload: str) -> BucketPoint:
    """Requests that stay in the smallest bucket."""
    bucket = plan.buckets[0]
    longest = max(point.output_tokens for point in plan.profile_points((bucket,)))
    output_tokens = min(NUM_TOKENS, longest)
    request = Request(input_tokens=bucket - output_tokens, output_tokens=output_tokens)
    return BucketPoint(name=idle_name(workload), requests=(request,) * NUM_REQUESTS, workload=workload)


def wake_s(records: Sequence[RequestRecord], timing: BucketTiming) -> tuple[float, ...]:
    """Seconds that each step of those who were alone from arrival to end took above the profile's, the first from its
    arrival on: TTFT - TTFT_b, then time between tokens - TBT_b, means over these requests.

    Of requests of one output length, in order of arrival. Raises MeasurementError where none was alone.

    Worked example: TTFT 15 ms and 4 ms between tokens, of a bucket of 10 and 2 ms: 5 ms, 2 ms, 2 ms, ...
    """
    assert timing.ttft_s is not None
    assert timing.tbt_s is not None
    ended_s, steps_s = 0.0, []
    nexts_s = (*(one.arrival_s for one in records[1:]), math.inf)
    for one, next_s in zip(records, nexts_s, strict=True):
        if ended_s <= one.arrival_s and one.token_times_s[-1] <= next_s:
            times_s = (one.arrival_s, *one.token_times_s)
            steps_s.append([later - earlier for earlier, later in pairwise(times_s)])
        ended_s = max(ended_s, one.token_times_s[-1])
    if not steps_s:
        raise MeasurementError(f"none of {len(records)} requests from idle was alone; want one at least")
    first_s, *others_s = map(fmean, zip(*steps_s, strict=True))
    return first_s - timing.ttft_s, *(step_s - timing.tbt_s for step_s in others_s)
