"""Expert bytes of layered against chunked prefill on the same requests (Layered Prefill, Table 7)."""

import pytest

pytestmark = pytest.mark.scheduling


@pytest.mark.npubench_cases("expert_loads")
def test_expert_loads(npubench_case):
    """Fails where layered prefill loads more."""
    npubench_case.run()
