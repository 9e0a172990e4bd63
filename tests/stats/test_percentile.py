import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from pytest_npubench.stats.percentile import percentile_bounds, proportion_bounds

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


@given(levels, confidences, samples_lists, st.randoms())
def test_order_does_not_matter(level, confidence, samples, random):
    shuffled = list(samples)
    random.shuffle(shuffled)
    assert percentile_bounds(shuffled, level, confidence) == percentile_bounds(samples, level, confidence)


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
