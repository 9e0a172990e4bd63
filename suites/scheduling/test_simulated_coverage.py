"""Whether the bands of a calibrated simulation hold what was served."""

import pytest

pytestmark = pytest.mark.scheduling


@pytest.mark.npubench_cases("simulated_coverage")
def test_simulated_coverage(npubench_case):
    """Fails where the 90 % band misses more blocks than chance allows."""
    npubench_case.run()
