"""The batch size that serves a workload cheapest, from a LENS profile of each (arXiv 2606.18042, section 5.4.1).

The same requests, in order, are cut into batches of N. With S their predicted seconds one batch after another,

    tokens_per_s = output tokens / S        cost = price an hour / 3600 / tokens_per_s x 10^6, of a million tokens

TTFT is a batch's prefill, so that of its last prompt; TBT that of a decode step's bucket, without moves of the cache.
Each is the quantile that a limit is about, over batches and over steps. A larger batch need not be the better one: its
shape may be a slow one of the compiler's.

Worked number: two requests of 100 tokens in and 3 out. N = 1 of TTFT 10 ms and TBT 2 ms: 2 x 14 ms, 214 tokens/s.
N = 2 of 10 and 3 ms: 20 + 2 x 3 = 26 ms, 231 tokens/s, TTFT 20 ms: best unless TTFT is limited to less than that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pytest_npubench.errors import InfeasibleError
from pytest_npubench.extensions.planning.bucket_search import Demand
from pytest_npubench.predictors.lens import LensPredictor
from pytest_npubench.predictors.profile import BucketProfile
from pytest_npubench.predictors.work import Finished

MILLION = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSpeed:
    """What is predicted of one profile's batch size. cost: of a million output tokens. tbt_s: None without a step."""

    name: str
    batch_size: int
    tokens_per_s: float
    ttft_s: float
    tbt_s: float | None
    cost: float


def batch_speed(
    name: str,
    profile: BucketProfile,
    requests: Sequence[tuple[int, int]],
    *,
    finished: Finished = "grow",
    quantile: float = 0.99,
    price_per_hour: float = 1.0,
) -> BatchSpeed:
    """Of (input_tokens, output_tokens) in batches of the profile's size. Raises as LensPredictor.predict_batch."""
    size = profile.batch_size
    batches = [requests[start : start + size] for start in range(0, len(requests), size)]
    lens = LensPredictor(profile)
    predicted = [lens.predict_batch(batch, finished=finished) for batch in batches]
    tokens_per_s = sum(output for _, output in requests) / sum(one.e2e_s for one in predicted)
    return BatchSpeed(
        name=name,
        batch_size=size,
        tokens_per_s=tokens_per_s,
        ttft_s=float(np.quantile([one.prefill_s for one in predicted], quantile, method="inverted_cdf")),
        tbt_s=_step_quantile_s(Demand.of(profile, batches, finished), profile, quantile),
        cost=MILLION * price_per_hour / 3600 / tokens_per_s,
    )


def best_batch(
    speeds: Sequence[BatchSpeed], *, max_ttft_s: float | None = None, max_tbt_s: float | None = None
) -> BatchSpeed:
    """The cheapest within the limits, of equal ones the smallest batch. Raises InfeasibleError naming the limit that
    none keeps."""
    kept = [speed for speed in speeds if keeps_ttft(speed, max_ttft_s) and keeps_tbt(speed, max_tbt_s)]
    if kept:
        return min(kept, key=lambda speed: (speed.cost, speed.batch_size))
    for what, limit_s, seconds in (
        ("TTFT", max_ttft_s, [speed.ttft_s for speed in speeds]),
        ("TBT", max_tbt_s, [speed.tbt_s or 0.0 for speed in speeds]),
    ):
        if limit_s is not None and (least_s := min(seconds)) > limit_s:
            least = speeds[seconds.index(least_s)]
            raise InfeasibleError(
                f"no batch size keeps a {what} of {limit_s:.4g} s; the least is {least_s:.4g} s, of {least.name}"
                f" (batch {least.batch_size})"
            )
    raise InfeasibleError("no batch size keeps TTFT and TBT together; each limit alone is kept by some")


def keeps_ttft(speed: BatchSpeed, limit_s: float | None) -> bool:
    return limit_s is None or speed.ttft_s <= limit_s


def keeps_tbt(speed: BatchSpeed, limit_s: float | None) -> bool:
    return limit_s is None or speed.tbt_s is None or speed.tbt_s <= limit_s


def _step_quantile_s(demand: Demand, profile: BucketProfile, quantile: float) -> float | None:
    """The smallest TBT that at least this share of all steps does not exceed; None where nothing decodes."""
    times_s = np.array([timing.tbt_s for timing in profile.buckets.values()], dtype=float)
    order = np.argsort(times_s)
    share = np.cumsum(demand.steps[order])
    if not share[-1]:
        return None
    return float(times_s[order][np.searchsorted(share, quantile * share[-1])])
