"""Prefill and decode on a device each, over the hardware the others have as one (Layered Prefill, Table 10)."""

import pytest

pytestmark = pytest.mark.scheduling


@pytest.mark.npubench_cases("disaggregated")
def test_disaggregated(npubench_case):
    """Fails where decode on a device of its own is proven slower, or layered prefill without its lead in TTFT."""
    npubench_case.run()
