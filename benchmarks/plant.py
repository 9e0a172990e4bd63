"""A pytest plugin that slows one bucket's prefill steps down by real work: `-p plant` with benchmarks/ on PYTHONPATH.

NPUBENCH_PLANT=512:0.10 makes every prefill of more than 256 up to 512 tokens that belongs to a steps case do 10 % more
work: small matrix products on the same device, for a tenth of the time that the prefill took. Profile points, drawn
batches and other buckets stay as they are.
"""

from __future__ import annotations

import os
from time import perf_counter

import numpy as np

from pytest_npubench.suites.buckets.bench import BucketBench
from pytest_npubench.suites.buckets.points import BucketPoint

BUCKET, FRACTION = os.environ.get("NPUBENCH_PLANT", "0:0").split(":")
FLOOR = int(BUCKET) // 2
SQUARE = np.ones((64, 64), dtype=np.float32)

_measure = BucketBench._time


def _slower(bench: BucketBench, point: BucketPoint) -> float:
    measured_s = _measure(bench, point)
    if not point.name.startswith("step/") or not FLOOR < point.requests[0].input_tokens <= int(BUCKET):
        return measured_s
    started_s = perf_counter()
    while perf_counter() - started_s < measured_s * float(FRACTION):
        SQUARE @ SQUARE
    return measured_s + perf_counter() - started_s


BucketBench._time = _slower  # type: ignore[method-assign]
