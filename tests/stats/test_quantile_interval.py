"""Percentiles and intervals of quantiles."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from pytest_npubench.errors import ConfigError, MeasurementError
from pytest_npubench.stats.percentile import percentile_bounds, proportion_bounds, quantile_interval


def exact_coverage(n, low_rank, high_rank, quantile):
    """P(low_rank <= Binomial(n, p) < high_rank), summed term by term."""
    return math.fsum(math.comb(n, k) * quantile**k * (1 - quantile) ** (n - k) for k in range(low_rank, high_rank))


def test_worked_number():
    assert quantile_interval(range(1, 11)) == (2.0, 9.0)
    assert exact_coverage(10, 2, 9, 0.5) == pytest.approx(0.979, abs=5e-4)
    assert exact_coverage(10, 3, 8, 0.5) == pytest.approx(0.891, abs=5e-4)


@given(st.integers(1, 80), st.sampled_from([0.25, 0.5, 0.9]), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_covers_as_promised_and_each_end_is_the_tightest(n, quantile, coverage):
    found = quantile_interval(range(1, n + 1), quantile, coverage)
    tail = (1 - coverage) / 2
    if found is None:
        assert quantile**n > tail or (1 - quantile) ** n > tail
        return
    low, high = map(int, found)
    assert exact_coverage(n, low, high, quantile) >= coverage - 1e-12
    assert exact_coverage(n, 0, low + 1, quantile) > tail, "one rank up would miss too often"
    assert exact_coverage(n, high - 1, n + 1, quantile) > tail, "one rank down would"


@given(st.lists(st.floats(-100, 100), min_size=8, max_size=60), st.sampled_from([0.3, 0.5, 0.7]))
def test_agrees_with_scipy(samples, quantile):
    theirs = stats.quantile_test(samples, p=quantile).confidence_interval(0.9)
    ours = quantile_interval(samples, quantile, 0.9)
    if ours is None:
        assert math.isnan(theirs.low) or math.isnan(theirs.high)
    else:
        assert ours == (theirs.low, theirs.high)


def test_five_samples_say_nothing_of_a_median():
    assert quantile_interval([1.0] * 5) is None
    assert quantile_interval([1.0] * 6) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([],), MeasurementError, "samples: no values"),
        (([math.inf],), MeasurementError, "samples: value 0 of 1 is inf"),
        (([1.0], 1.0), ConfigError, "quantile is 1.0"),
        (([1.0], 0.5, 95), ConfigError, "coverage is 95"),
    ],
)
def test_questions_without_answer(arguments, error, message):
    with pytest.raises(error, match=message):
        quantile_interval(*arguments)


levels = st.sampled_from([0.5, 0.75, 0.9, 0.95, 0.99])
confidences = st.sampled_from([0.8, 0.9, 0.95, 0.99])
samples_lists = st.lists(st.integers(0, 50).map(float), min_size=1, max_size=120)


def at_most(num_over, num_samples, over_fraction):
    """P(Binomial <= num_over) in exact fractions."""
    p = Fraction(over_fraction).limit_denominator(10_000)
    return sum(math.comb(num_samples, k) * p**k * (1 - p) ** (num_samples - k) for k in range(num_over + 1))


@given(levels, confidences, samples_lists)
def test_bounds_are_the_tightest_order_statistics(level, confidence, samples):
    """Every order statistic tried, in exact fractions."""
    n, ordered = len(samples), sorted(samples)
    p = Fraction(level).limit_denominator(100)
    cdf = np.cumsum([math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)])
    wanted = Fraction(confidence).limit_denominator(100)
    # the k-th smallest is <= the quantile when k samples or more are, and >= it when fewer than k are below
    lows = [k for k in range(1, n + 1) if 1 - cdf[k - 1] >= wanted]
    highs = [k for k in range(1, n + 1) if cdf[k - 1] >= wanted]
    expected = (ordered[lows[-1] - 1] if lows else None, ordered[highs[0] - 1] if highs else None)
    assert percentile_bounds(samples, level, confidence) == expected


@given(st.integers(0, 40), st.integers(0, 40), st.floats(0.5, 0.999))
def test_proportions_agree_with_scipy_and_statsmodels(num_good, num_bad, confidence):
    total = num_good + num_bad
    if total == 0:
        return
    bounds = proportion_bounds(num_good, total, confidence)
    scipys = stats.binomtest(num_good, total).proportion_ci(confidence, method="exact")
    assert bounds == pytest.approx((scipys.low, scipys.high), abs=1e-9)
    assert bounds == pytest.approx(proportion_confint(num_good, total, 1 - confidence, method="beta"), abs=1e-9)
    assert bounds[0] <= num_good / total <= bounds[1]


def test_all_and_none_good():
    assert proportion_bounds(10, 10, 0.95)[1] == 1.0
    assert proportion_bounds(0, 10, 0.95)[0] == 0.0
