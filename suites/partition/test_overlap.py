"""Synchronisation inside and outside the critical path (HeteroInfer, section 4.3, Fig. 10)."""

import pytest

pytestmark = pytest.mark.partition


@pytest.mark.npubench_cases("overlap")
def test_overlap(npubench_case):
    """Chains of dependent operators in prefill and decode order, under a fast and a slow mechanism."""
    npubench_case.run()
