"""The batch size and the bucket set that LENS finds, beside the others of them."""

import pytest

pytestmark = pytest.mark.buckets


@pytest.mark.npubench_cases("batch_search")
def test_batch_search(npubench_case):
    """Fails where the predicted best gives up more throughput than errors within limits.case_error can."""
    npubench_case.run()


@pytest.mark.npubench_cases("bucket_search")
def test_bucket_search(npubench_case):
    """The same of sets of buckets."""
    npubench_case.run()


@pytest.mark.npubench_cases("bucket_choice")
def test_bucket_choice(npubench_case):
    """The same of the bucket that a batch runs in, where a larger one than it needs may be the faster."""
    npubench_case.run()
