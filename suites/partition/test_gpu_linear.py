"""The unit of dynamic shapes: linear in FLOP past a threshold (HeteroInfer, section 3.1, GPU-1)."""

import pytest

pytestmark = pytest.mark.partition


@pytest.mark.npubench_cases("gpu_linear")
def test_gpu_linear(npubench_case):
    """Time against tokens of one weight, on the GPU role alone."""
    npubench_case.run()
