"""Shadow outliers alone (llm.npu, arXiv 2407.05858)."""

import pytest

pytestmark = pytest.mark.offload


@pytest.mark.npubench_cases("shadow_outlier")
def test_shadow_outlier(npubench_case):
    """Error and time of int8 on the static unit, with outliers clipped, shadowed on the other unit, or kept."""
    npubench_case.run()
