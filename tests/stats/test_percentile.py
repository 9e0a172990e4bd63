import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from pytest_npubench.errors import ConfigError, MeasurementError
from pytest_npubench.stats.percentile import percentile_bounds, percentile_within, proportion_bounds, samples_needed

levels = st.sampled_from([0.5, 0.75, 0.9, 0.95, 0.99])
confidences = st.sampled_from([0.8, 0.9, 0.95, 0.99])
samples_lists = st.lists(st.integers(0, 50).map(float), min_size=1, max_size=120)


def at_most(num_over, num_samples, over_fraction):
    """P(Binomial <= num_over) in exact fractions."""
    p = Fraction(over_fraction).limit_denominator(10_000)
    return sum(math.comb(num_samples, k) * p**k * (1 - p) ** (num_samples - k) for k in range(num_over + 1))


@pytest.mark.parametrize(
    ("level", "num_over", "expected"),
    [(0.99, 0, 459), (0.99, 1, 662), (0.95, 0, 90), (0.95, 1, 130), (0.90, 0, 44), (0.90, 1, 64)],
)
def test_samples_needed_are_the_known_ones(level, num_over, expected):
    assert samples_needed(level, 0.99, num_over) == expected


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95])
@pytest.mark.parametrize("confidence", [0.5, 0.875, 0.95, 0.99])
@pytest.mark.parametrize("num_over", [0, 1, 4])
def test_samples_needed_is_the_fewest(level, confidence, num_over):
    needed, miss = samples_needed(level, confidence, num_over), 1 - Fraction(confidence).limit_denominator(10_000)
    assert at_most(num_over, needed, 1 - level) <= miss
    assert at_most(num_over, needed - 1, 1 - level) > miss


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


@given(levels, confidences, samples_lists, st.integers(-1, 51))
def test_within_agrees_with_the_bounds(level, confidence, samples, limit):
    low, high = percentile_bounds(samples, level, confidence)
    answer = percentile_within(samples, limit, level, confidence)
    assert (answer is True) == (high is not None and high <= limit)
    assert (answer is False) == (low is not None and low > limit)


@given(levels, confidences, samples_lists, st.randoms())
def test_order_does_not_matter(level, confidence, samples, random):
    shuffled = list(samples)
    random.shuffle(shuffled)
    assert percentile_bounds(shuffled, level, confidence) == percentile_bounds(samples, level, confidence)


@given(st.integers(1, 60), st.integers(-1, 51), st.integers(-1, 51))
def test_a_wider_limit_is_never_worse(seed, one, other):
    samples = np.random.default_rng(seed).integers(0, 50, 80)
    order = {False: 0, None: 1, True: 2}
    low, high = sorted((one, other))
    assert order[percentile_within(samples, low, 0.9, 0.9)] <= order[percentile_within(samples, high, 0.9, 0.9)]


def test_few_samples_are_inconclusive_and_never_a_guess():
    assert percentile_within([0.001] * 458, 1.0, 0.99, 0.99) is None
    assert percentile_within([0.001] * 459, 1.0, 0.99, 0.99) is True
    assert percentile_within([0.001] * 458 + [2.0], 1.0, 0.99, 0.99) is None
    assert percentile_within([0.001] * 661 + [2.0], 1.0, 0.99, 0.99) is True
    assert percentile_within([2.0, 2.0], 1.0, 0.99, 0.99) is False, "two of two over happen once in 10,000"
    assert percentile_bounds(range(458), 0.99, 0.99)[1] is None


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_the_answers_are_wrong_as_seldom_as_promised(level):
    """Limits a hair below and at the true quantile of an exponential: the worst case for each answer."""
    rng, confidence, draws = np.random.default_rng(9), 0.9, 2000
    quantile = stats.expon.ppf(level)
    answers = [percentile_within(rng.exponential(size=100), quantile, level, confidence) for _ in range(draws)]
    slack = 3 * math.sqrt(0.09 / draws)
    assert 0.03 < np.mean([a is True for a in answers]) < 0.1 + slack
    assert 0.03 < np.mean([a is False for a in answers]) < 0.1 + slack


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


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: percentile_bounds([], 0.9, 0.9), MeasurementError, "samples: no values"),
        (lambda: percentile_bounds([1.0, math.nan], 0.9, 0.9), MeasurementError, "samples: value 1 of 2 is nan"),
        (lambda: percentile_within([1.0], math.nan, 0.9, 0.9), MeasurementError, "limit is nan"),
        (lambda: percentile_within([1.0], 1.0, 99, 0.9), ConfigError, "level is 99"),
        (lambda: percentile_within([1.0], 1.0, 0.9, 1.0), ConfigError, "confidence is 1.0"),
        (lambda: samples_needed(0.9, 0.9, -1), ConfigError, "num_over is -1"),
        (lambda: samples_needed(1.0, 0.9), ConfigError, "level is 1.0"),
        (lambda: proportion_bounds(0, 0, 0.9), MeasurementError, "0 good of 0"),
        (lambda: proportion_bounds(3, 2, 0.9), MeasurementError, "3 good of 2"),
        (lambda: proportion_bounds(-1, 2, 0.9), MeasurementError, "-1 good of 2"),
    ],
)
def test_questions_that_cannot_be(call, error, message):
    with pytest.raises(error, match=message):
        call()
