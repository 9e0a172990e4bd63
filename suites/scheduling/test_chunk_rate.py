"""The rate that each chunk size bears within one TTFT, and what it costs there (Layered Prefill, Table 2)."""

import pytest

pytestmark = pytest.mark.scheduling


@pytest.mark.npubench_cases("chunk_rate")
def test_chunk_rate(npubench_case):
    """Fails where rate, TBT or expert bytes are proven to go the other way; inconclusive where TTFT crosses nowhere."""
    npubench_case.run()
