"""SLO attainment against the rate, and layered over chunked prefill's capacity (Layered Prefill, Figs. 3 and 4)."""

import pytest

pytestmark = pytest.mark.scheduling


@pytest.mark.npubench_cases("attainment")
def test_attainment(npubench_case):
    """Fails where layered prefill's capacity at 90 % attainment is proven to be the smaller one, and where a policy's
    lies below every rate tried; both capacities are held against accepted nights."""
    npubench_case.run()
