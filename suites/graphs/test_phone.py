"""Graphs of every bucket as jobs of Qualcomm AI Hub: they cost the quota of the account."""

import pytest

pytest.importorskip(
    "pytest_npubench.extensions.compilers",
    reason="the suite graphs comes with the extension compilers, which is not here",
)
pytestmark = pytest.mark.graphs


@pytest.mark.npubench_cases("profile")
def test_profile(npubench_case):
    """Passes once the phone's NPU ran the bucket's two graphs."""
    npubench_case.run()


@pytest.mark.npubench_cases("steps")
def test_steps(npubench_case):
    """The step from a bucket's prefill graph to the next one's."""
    npubench_case.run()


@pytest.mark.npubench_cases("prediction")
def test_prediction(npubench_case):
    """What LENS predicts from the graphs; inconclusive, since nothing runs from end to end there."""
    npubench_case.run()
