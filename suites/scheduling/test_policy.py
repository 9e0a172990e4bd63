"""Each policy under each load: TTFT, TBT, attainment, smoothness, fairness (Layered Prefill, Tables 6, 9, 12)."""

import pytest

pytestmark = pytest.mark.scheduling


@pytest.mark.npubench_cases("policy")
def test_policy(npubench_case):
    """Fails where a stall-free policy misses the SLO for more than 10 % of the arrived requests."""
    npubench_case.run()
