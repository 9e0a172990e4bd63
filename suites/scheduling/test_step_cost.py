"""Whether a step cost that was calibrated before still holds."""

import pytest

pytestmark = pytest.mark.scheduling


@pytest.mark.npubench_cases("step_cost")
def test_step_cost(npubench_case):
    """Fails where TTFT or TPOT of one of two requests is outside the band of the hardware file's step cost."""
    npubench_case.run()
