"""How many requests a second LENS predicts: arrays against a plain loop over the steps, and the memory it takes.

    python benchmarks/lens_throughput.py [num_requests]

The timings in the profile are made up; only the predictor itself is measured here.
"""

from __future__ import annotations

import statistics
import sys
import time
import tracemalloc

import numpy as np

from pytest_npubench.predictors.lens import BucketProfile, BucketTiming, LensPredictor

BUCKETS = (128, 256, 512, 1024, 2048, 4096, 8192)
NUM_LOOPED = 2_000
NUM_REPEATS = 7


def loop_e2e_s(profile: BucketProfile, input_tokens: int, output_tokens: int) -> float:
    """Eq. 6 as one writes it down: a step at a time."""

    def timing(length: int) -> BucketTiming:
        return next(timing for bucket, timing in profile.buckets.items() if length <= bucket)

    return timing(input_tokens).ttft_s + sum(timing(input_tokens + t + 1).tbt_s for t in range(output_tokens - 1))


def main(num_requests: int) -> None:
    rng = np.random.default_rng(0)
    inputs = rng.integers(1, 6000, num_requests)
    outputs = rng.integers(1, 2000, num_requests)
    timings = {b: BucketTiming(ttft_s=1e-4 * b, tbt_s=5e-3 + 1e-6 * b) for b in BUCKETS}
    profile = BucketProfile(buckets=timings)
    predictor = LensPredictor(profile)

    times_s = []
    for _ in range(NUM_REPEATS):
        started_at_s = time.perf_counter()
        e2e_s = predictor.predict(inputs, outputs).e2e_s
        times_s.append(time.perf_counter() - started_at_s)

    started_at_s = time.perf_counter()
    pairs = zip(inputs[:NUM_LOOPED].tolist(), outputs[:NUM_LOOPED].tolist(), strict=True)
    looped_s = np.array([loop_e2e_s(profile, *pair) for pair in pairs])
    loop_time_s = time.perf_counter() - started_at_s
    np.testing.assert_allclose(e2e_s[:NUM_LOOPED], looped_s, rtol=1e-9)

    tracemalloc.start()
    predictor.predict(inputs, outputs)
    peak_bytes = tracemalloc.get_traced_memory()[1]

    median_s = statistics.median(times_s)
    ratio = (loop_time_s / looped_s.size) / (median_s / num_requests)
    print(f"{num_requests:,} requests over {len(BUCKETS)} buckets: {median_s:.3f} s (median of {NUM_REPEATS})")
    print(f"worst {max(times_s):.3f} s, best {min(times_s):.3f} s, {num_requests / median_s:,.0f} requests/s")
    print(f"plain loop, {looped_s.size:,} requests: {loop_time_s:.3f} s; {ratio:,.0f} times as long a request")
    print(f"peak extra memory {peak_bytes / 1e6:.0f} MB, of which results {2 * e2e_s.nbytes / 1e6:.0f} MB")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
