"""Memory bandwidth of one unit and of both at once (HeteroInfer, section 3.3, Memory-1)."""

import pytest

pytestmark = pytest.mark.partition


@pytest.mark.npubench_cases("bandwidth")
def test_bandwidth(npubench_case):
    """Matrix-vector streams alone and together."""
    npubench_case.run()
