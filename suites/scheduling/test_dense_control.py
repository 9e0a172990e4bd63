"""A dense decoder as control (Layered Prefill, section 5.13)."""

import pytest

pytestmark = pytest.mark.scheduling


@pytest.mark.npubench_cases("dense_control")
def test_dense_control(npubench_case):
    """Fails where layered prefill wins: it has no expert loads to save there."""
    npubench_case.run()
