"""What the compiler makes of a matrix product and the operator that follows it: hidden, partly saved, or neither."""

import pytest

pytestmark = pytest.mark.buckets


@pytest.mark.npubench_cases("fusion")
def test_fusion(npubench_case):
    """Passes once measured, and says what the compiler does; both together are compared with other sessions."""
    npubench_case.run()
