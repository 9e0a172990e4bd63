"""What it costs one unit to wait for the other, by mechanism (HeteroInfer, sections 3.1, 4.3, GPU-2)."""

import pytest

pytestmark = pytest.mark.partition


@pytest.mark.npubench_cases("sync_cost")
def test_sync_cost(npubench_case):
    """Round trips, and the smallest operators split under the fastest and the slowest mechanism."""
    npubench_case.run()
