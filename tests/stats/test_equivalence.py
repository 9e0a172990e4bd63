import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.weightstats import ttost_ind, ttost_paired

from pytest_npubench.errors import ConfigError, MeasurementError
from pytest_npubench.stats.equivalence import equivalence_p
from pytest_npubench.stats.margin_test import interval


def test_worked_number():
    assert equivalence_p(0.0, 0.03, [0.01, 0.03], 9).tolist() == pytest.approx([0.00748, 0.17172], abs=1e-5)


@given(st.integers(0, 10_000), st.floats(0.05, 2))
def test_agrees_with_statsmodels(seed, limit):
    rng = np.random.default_rng(seed)
    one, other = rng.normal(0.1, 1, 8), rng.normal(0, 1, 6)
    pooled = (7 * one.var(ddof=1) + 5 * other.var(ddof=1)) / 12
    error = math.sqrt(pooled * (1 / 8 + 1 / 6))
    expected = ttost_ind(one, other, -limit, limit)[0]
    assert equivalence_p(one.mean() - other.mean(), limit, error, 12) == pytest.approx(expected, rel=1e-9)
    paired = ttost_paired(one[:6], other, -limit, limit)[0]
    gaps = one[:6] - other
    assert equivalence_p(gaps.mean(), limit, gaps.std(ddof=1) / math.sqrt(6), 5) == pytest.approx(paired, rel=1e-9)


@given(st.floats(-0.1, 0.1), st.floats(1e-4, 0.1), st.floats(1, 200))
def test_is_the_larger_tail(difference, error, freedom):
    nearer = (0.03 - abs(difference)) / error
    expected = stats.t.sf(nearer, freedom)
    assert equivalence_p(difference, 0.03, error, freedom) == pytest.approx(expected, rel=1e-6, abs=1e-300)


@given(st.floats(-0.1, 0.1), st.floats(1e-4, 0.1), st.floats(1, 200))
def test_unchanged_at_5_percent_means_the_90_percent_interval_is_inside(difference, error, freedom):
    low, high = interval(difference, error, freedom, 0.90)
    p = equivalence_p(difference, 0.03, error, freedom)
    if abs(p - 0.05) > 1e-9:
        assert (p < 0.05) == (low > -0.03 and high < 0.03)


@given(st.floats(-0.1, 0.1), st.floats(0, 0.1))
def test_faster_and_slower_are_alike(difference, error):
    assert equivalence_p(difference, 0.03, error, 9) == equivalence_p(-difference, 0.03, error, 9)


def test_without_any_error():
    assert equivalence_p([0.0, 0.029, 0.03, -0.03, 0.04], 0.03, 0.0, 9).tolist() == [0, 0, 1, 1, 1]


@pytest.mark.parametrize("limit", [0.0, -0.03, math.nan, math.inf])
def test_a_limit_is_above_zero(limit):
    with pytest.raises(ConfigError, match=r"limit is .*; want a finite number above 0"):
        equivalence_p(0.0, limit, 1.0, 9)


def test_a_difference_that_is_none():
    with pytest.raises(MeasurementError, match="difference: value 0 of 1 is nan"):
        equivalence_p(math.nan, 0.03, 1.0, 9)
