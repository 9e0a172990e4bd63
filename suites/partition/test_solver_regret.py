"""The solver's decisions all together against the best splits measured (HeteroInfer, section 4.4)."""

import pytest

pytestmark = pytest.mark.partition


@pytest.mark.npubench_cases("solver_regret")
def test_solver_regret(npubench_case):
    """Fails above a median regret of 5 %, or above 15 % at the 90th percentile."""
    npubench_case.run()
