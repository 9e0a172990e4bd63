"""The rate at which too few requests attain their SLO on the server of NPUBENCH_SERVER_URL, workload by workload."""

import pytest


@pytest.mark.npubench_cases("capacity")
def test_capacity(npubench_case):
    """Fails where requests miss their SLO even on an idle server; the capacity is held against accepted nights."""
    npubench_case.run()
