"""LENS against requests that are served as they arrive."""

import pytest

pytestmark = pytest.mark.buckets


@pytest.mark.npubench_cases("online")
def test_online(npubench_case):
    """TTFT, TPOT and E2E: fails where a mean is off by more than limits.mean_error, a p99 by limits.case_error."""
    npubench_case.run()
