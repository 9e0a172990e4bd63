"""Lengths across a bucket's edge: padding, pipe, online prepare, chunked and the splits (HeteroInfer, Fig. 14)."""

import pytest

pytestmark = pytest.mark.partition


@pytest.mark.npubench_cases("bucket_edges")
def test_bucket_edges(npubench_case):
    """Fails where the solver's plan is proven slower than padding."""
    npubench_case.run()
