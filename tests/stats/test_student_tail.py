"""The table of Student's tail against scipy."""

import numpy as np
import pytest
from scipy import stats

from pytest_npubench.stats.student_tail import log_density, upper_tail

VALUES = np.concatenate([-np.geomspace(1e-3, 300, 60), [0.0], np.geomspace(1e-3, 300, 60)])


@pytest.mark.parametrize("freedom", [2.5, 3.0, 7.0, 40.0])
def test_density_and_tail(freedom):
    assert log_density(np.square(VALUES), freedom) == pytest.approx(stats.t.logpdf(VALUES, freedom))
    single = log_density(np.square(VALUES).astype(np.float32), freedom)
    assert single.dtype == np.float32
    assert single == pytest.approx(stats.t.logpdf(VALUES, freedom), rel=1e-5, abs=1e-5)
    assert upper_tail(VALUES, freedom) == pytest.approx(
        stats.t.sf(VALUES, freedom), rel=1.5e-2 if freedom > 7 else 1e-3
    )


def test_worked_numbers():
    assert upper_tail(np.array([4.0]), 7.0)[0] == pytest.approx(0.0026, abs=5e-5)
    assert log_density(np.array([16.0]), 7.0)[0] == pytest.approx(-5.7, abs=0.05)
