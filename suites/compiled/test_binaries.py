"""Binaries of every bucket, compiled without a device: what fits, what is copied, what the compiler estimates."""

import pytest

pytest.importorskip(
    "pytest_npubench.extensions.compilers",
    reason="the suite compiled comes with the extension compilers, which is not here",
)
pytestmark = pytest.mark.compiled


@pytest.mark.npubench_cases("profile")
def test_profile(npubench_case):
    """Passes where all binaries up to the bucket compile, fit together, write their caches in place and copy none."""
    npubench_case.run()


@pytest.mark.npubench_cases("steps")
def test_steps(npubench_case):
    """The estimated stair to the next bucket."""
    npubench_case.run()


@pytest.mark.npubench_cases("serving")
def test_serving(npubench_case):
    """Passes where the layers of a serving size compile, fit, write in place and copy no keys, values or experts."""
    npubench_case.run()


@pytest.mark.npubench_cases("prediction")
def test_prediction(npubench_case):
    """Passes where the binaries that a workload's batches touch compile, and are one module each."""
    npubench_case.run()
