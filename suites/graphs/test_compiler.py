"""Graphs of every bucket by Qualcomm's compiler on this machine, and its emulated NPU's answers: no phone runs."""

import pytest

pytest.importorskip(
    "pytest_npubench.extensions.compilers",
    reason="the suite graphs comes with the extension compilers, which is not here",
)
pytestmark = pytest.mark.graphs


@pytest.mark.npubench_cases("layers")
def test_layers(npubench_case):
    """Passes where a layer's graphs compile, all that is loaded fits the device, and the answers are exact enough."""
    npubench_case.run()


@pytest.mark.npubench_cases("making")
def test_making(npubench_case):
    """What a prefill graph costs to make, whole and in chunks; a product in INT8 with its shadow path helps."""
    npubench_case.run()


@pytest.mark.npubench_cases("batches")
def test_batches(npubench_case):
    """Passes where the graphs that a workload's batches touch are one context binary each."""
    npubench_case.run()
