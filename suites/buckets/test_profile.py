"""TTFT_b and TBT_b of every compiled bucket, from two end-to-end measurements each (LENS, Eq. 14 and 15)."""

import pytest

pytestmark = pytest.mark.buckets


@pytest.mark.npubench_cases("profile")
def test_profile(npubench_case):
    """Passes once both times are measured inside the bucket, with at most 2 points and, if it compiles, 2 binaries."""
    npubench_case.run()
