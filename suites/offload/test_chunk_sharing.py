"""Chunk-sharing graphs alone (llm.npu, arXiv 2407.05858)."""

import pytest

pytestmark = pytest.mark.offload


@pytest.mark.npubench_cases("chunk_sharing")
def test_chunk_sharing(npubench_case):
    """Number of graphs, compile time, bytes and run time of four ways to run a long prompt on static graphs."""
    npubench_case.run()
