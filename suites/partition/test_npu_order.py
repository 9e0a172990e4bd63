"""The static unit: which operand comes first (HeteroInfer, section 3.2, NPU-2)."""

import pytest

pytestmark = pytest.mark.partition


@pytest.mark.npubench_cases("npu_order")
def test_npu_order(npubench_case):
    """[rows, cols] x tokens against its transpose, equal FLOP."""
    npubench_case.run()
