"""Layered prefill by its number of layer groups (Layered Prefill, Table 11)."""

import pytest

pytestmark = pytest.mark.scheduling


@pytest.mark.npubench_cases("group_sweep")
def test_group_sweep(npubench_case):
    """Fails where TTFT falls, or the worst TBT rises, from the fewest groups to the most."""
    npubench_case.run()
