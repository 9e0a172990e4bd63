"""Batches that are drawn from a workload, and the buckets that they touch.

A workload's requests are one seeded sample, so that every machine draws the same ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING
from zlib import crc32

from pytest_npubench.suites.buckets.points import BucketPoint

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from pytest_npubench.core.buckets import BucketKeys
    from pytest_npubench.workloads import LengthSample

    Lengths = npt.NDArray[np.int64]

DRAWN_VISIT_S = 0.7  # one batch is half of a case's error: a long one is to be seen more than once in a round


@lru_cache(maxsize=256)
def sample(workload_name: str, num_requests: int, batch_size: int, max_total_tokens: int) -> LengthSample:
    """Requests of a workload that fit max_total_tokens; the sample counts what did not fit."""
    from pytest_npubench.workloads import ANY_UNIT, workload

    seed = crc32(f"{workload_name}/{batch_size}".encode())  # other lengths for other batch sizes
    return workload(workload_name, time_unit=ANY_UNIT).sample(
        num_requests, seed=seed, max_total_tokens=max_total_tokens
    )


def drawn_batches(
    workload_name: str, *, num_batches: int, batch_size: int, max_total_tokens: int
) -> tuple[BucketPoint, ...]:
    """Each batch is a point, with lengths of the workload's sample."""
    requests = sample(workload_name, num_batches * batch_size, batch_size, max_total_tokens).requests
    return tuple(
        BucketPoint(
            name=f"batch/{workload_name}/{index}",
            requests=requests[index * batch_size : (index + 1) * batch_size],
            warm_up=False,
            visit_s=DRAWN_VISIT_S,
        )
        for index in range(num_batches)
    )


def many_requests(workload_name: str, num_requests: int, max_total_tokens: int) -> tuple[Lengths, Lengths]:
    """Input and output tokens, int64 [num_requests] each, of one seeded sample of a workload."""
    import numpy as np

    from pytest_npubench.workloads import ANY_UNIT, workload

    requests = (
        workload(workload_name, time_unit=ANY_UNIT)
        .sample(num_requests, seed=0, max_total_tokens=max_total_tokens)
        .requests
    )
    inputs = np.array([item.input_tokens for item in requests], dtype=np.int64)
    return inputs, np.array([item.output_tokens for item in requests], dtype=np.int64)


def touched_buckets(
    batches: Iterable[BucketPoint], keys: BucketKeys, buckets: Sequence[int], batch_size: int
) -> tuple[int, ...]:
    """Every bucket from a batch's shortest prompt to its longest KV length, over all these batches."""
    touched = set[int]()
    for batch in batches:
        prompts = [request.input_tokens for request in batch.requests]
        longest = max(request.input_tokens + request.output_tokens - 1 for request in batch.requests)
        first = keys.prefill_key(min(prompts))
        last = max(keys.prefill_key(max(prompts)), keys.decode_key(longest, batch_size))
        touched.update(bucket for bucket in buckets if first <= bucket <= last)
    return tuple(sorted(touched))
