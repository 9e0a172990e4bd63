"""How many outliers may be dropped or missed (llm.npu, arXiv 2407.05858)."""

import pytest

pytestmark = pytest.mark.offload


@pytest.mark.npubench_cases("pruning")
def test_pruning(npubench_case):
    """Error against the share of outliers pruned, and against the miss rate of hot channels."""
    npubench_case.run()
