"""The static unit: more rows than columns or the other way round (HeteroInfer, section 3.2, NPU-3)."""

import pytest

pytestmark = pytest.mark.partition


@pytest.mark.npubench_cases("npu_shape")
def test_npu_shape(npubench_case):
    """Two weights of equal FLOP, one the other's transpose."""
    npubench_case.run()
