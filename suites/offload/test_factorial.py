"""The three techniques on and off, all eight ways (llm.npu's reviews)."""

import pytest

pytestmark = pytest.mark.offload


@pytest.mark.npubench_cases("factorial")
def test_factorial(npubench_case):
    """Main effects and interactions on one pipeline, from rows of one fingerprint."""
    npubench_case.run()
