"""Orders under a bandwidth hog and random stalls (llm.npu's reviews)."""

import pytest

pytestmark = pytest.mark.offload


@pytest.mark.npubench_cases("contention")
def test_contention(npubench_case):
    """The replay of each order while something else holds the memory or stalls a unit."""
    npubench_case.run()
