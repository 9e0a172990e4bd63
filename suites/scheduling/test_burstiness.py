"""Bursty arrivals (Layered Prefill, Table 12)."""

import pytest

pytestmark = pytest.mark.scheduling


@pytest.mark.npubench_cases("burstiness")
def test_burstiness(npubench_case):
    """Fails where layered prefill loses its lead in TTFT."""
    npubench_case.run()
