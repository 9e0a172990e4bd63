"""The static unit: time in stages of its tile (HeteroInfer, section 3.2, NPU-1)."""

import pytest

pytestmark = pytest.mark.partition


@pytest.mark.npubench_cases("npu_stage")
def test_npu_stage(npubench_case):
    """Time against tokens of one weight, on the NPU role alone; the stage width found."""
    npubench_case.run()
