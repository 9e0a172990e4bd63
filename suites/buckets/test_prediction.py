"""LENS against the measured end-to-end time of batches drawn from real workload lengths."""

import pytest

pytestmark = pytest.mark.buckets


@pytest.mark.npubench_cases("prediction")
def test_prediction(npubench_case):
    """Fails where the prediction error of a workload is over the hardware file's limits.case_error for sure, or LENS
    counts other steps than the engine ran."""
    npubench_case.run()


@pytest.mark.npubench_cases("mean_error")
def test_mean_error(npubench_case):
    """Fails where the mean over the workloads is over limits.mean_error for sure."""
    npubench_case.run()


@pytest.mark.npubench_cases("band_coverage")
def test_band_coverage(npubench_case):
    """Fails where the 90 % band misses more batches than chance allows."""
    npubench_case.run()
