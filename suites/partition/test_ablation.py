"""HeteroInfer's techniques on and off, all ways, on a decoder layer (HeteroInfer, Fig. 18)."""

import pytest

pytestmark = pytest.mark.partition


@pytest.mark.npubench_cases("ablation")
def test_ablation(npubench_case):
    """The effect of each technique on the time of a prefill, and of each pair of them, with intervals."""
    npubench_case.run()
