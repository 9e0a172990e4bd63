"""Each workload at each rate on the server of NPUBENCH_SERVER_URL: TTFT, TBT, E2E, SLO attainment, throughput."""

import pytest


@pytest.mark.npubench_cases("open_load")
def test_open_load(npubench_case):
    """Fails where too few of the arrived requests attain their SLO; a request that fails counts against it."""
    npubench_case.run()
