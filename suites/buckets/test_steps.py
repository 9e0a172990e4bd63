"""Latency steps where the declared buckets say, and nowhere else; nothing compiles after warm-up."""

import pytest

pytestmark = pytest.mark.buckets


@pytest.mark.npubench_cases("steps")
def test_steps(npubench_case):
    """Prefill at the middle of a bucket, at b - 1, b and b + 1: fails on a jump inside the bucket.

    On an engine without buckets (vLLM on a CPU): fails on a jump from one token to the next.
    """
    npubench_case.run()
