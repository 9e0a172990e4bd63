"""Experts loaded by one decode step, by batch size (Layered Prefill, Table 1)."""

import pytest

pytestmark = pytest.mark.scheduling


@pytest.mark.npubench_cases("expert_coverage")
def test_expert_coverage(npubench_case):
    """An exact counter: fails where the rounds of a run, or an accepted session, count otherwise."""
    npubench_case.run()
