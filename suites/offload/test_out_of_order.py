"""Out-of-order subgraphs alone (llm.npu, arXiv 2407.05858)."""

import pytest

pytestmark = pytest.mark.offload


@pytest.mark.npubench_cases("out_of_order")
def test_out_of_order(npubench_case):
    """Makespans of seven orders beside the lower bound, replayed on the pair."""
    npubench_case.run()
