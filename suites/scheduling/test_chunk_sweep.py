"""One prompt in chunks of different size: expert bytes and time (Layered Prefill, Fig. 2)."""

import pytest

pytestmark = pytest.mark.scheduling


@pytest.mark.npubench_cases("chunk_sweep")
def test_chunk_sweep(npubench_case):
    """Bytes are counted exactly, time is compared with accepted sessions."""
    npubench_case.run()
