"""Tokens of one request over time (Layered Prefill, Fig. 5)."""

import pytest

pytestmark = pytest.mark.scheduling


@pytest.mark.npubench_cases("timeline")
def test_timeline(npubench_case):
    """A picture and the ratio of E2E; compared with accepted sessions."""
    npubench_case.run()
