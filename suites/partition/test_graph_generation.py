"""What a graph for a new shape costs (HeteroInfer, Fig. 8)."""

import pytest

pytestmark = pytest.mark.partition


@pytest.mark.npubench_cases("graph_generation")
def test_graph_generation(npubench_case):
    """Compile time against tokens of one weight."""
    npubench_case.run()
