"""The solver's plans on the real pair against the best there is (HeteroInfer, section 4.4)."""

import pytest

pytestmark = pytest.mark.partition


@pytest.mark.npubench_cases("solver")
def test_solver(npubench_case):
    """Regret, prediction error and speed-up over the best single unit, by operator and length."""
    npubench_case.run()
