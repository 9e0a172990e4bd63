"""Offline throughput, and larger iterations (Layered Prefill, section 5.9)."""

import pytest

pytestmark = pytest.mark.scheduling


@pytest.mark.npubench_cases("relaxed_slo")
def test_relaxed_slo(npubench_case):
    """Fails where layered prefill serves fewer tokens a second than chunked prefill."""
    npubench_case.run()
