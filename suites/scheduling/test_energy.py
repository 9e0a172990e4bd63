"""Energy a token (Layered Prefill, Table 8)."""

import pytest

pytestmark = pytest.mark.scheduling


@pytest.mark.npubench_cases("energy")
def test_energy(npubench_case):
    """Inconclusive where the device has no energy counter that can be read."""
    npubench_case.run()
