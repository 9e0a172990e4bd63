import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from pytest_npubench.errors import ConfigError, MeasurementError
from pytest_npubench.stats.margin_test import interval, one_sided_p, predictive_variance

differences = st.floats(-1, 1)
errors = st.floats(1e-6, 1)
freedoms = st.floats(0.5, 1000)


def test_worked_number():
    error = math.sqrt(predictive_variance(0.01**2, 10))
    assert error == pytest.approx(0.01049, abs=1e-5)
    assert one_sided_p(0.05, 0.01, error, 9) == pytest.approx(0.0021, abs=5e-5)


@given(differences, st.floats(0, 0.1), errors, freedoms)
def test_p_is_the_tail_of_student(difference, margin, error, freedom):
    p = one_sided_p(difference, margin, error, freedom)
    assert p == pytest.approx(stats.t.sf((difference - margin) / error, freedom), rel=1e-6, abs=1e-300)


def test_p_is_the_integral_of_the_density():
    """Student's density written out, so that no library's tail is the only witness."""
    freedom, t = 7.0, 1.3
    scale = math.gamma((freedom + 1) / 2) / (math.sqrt(freedom * math.pi) * math.gamma(freedom / 2))
    tail = integrate.quad(lambda x: scale * (1 + x * x / freedom) ** (-(freedom + 1) / 2), t, math.inf)[0]
    assert one_sided_p(t, 0.0, 1.0, freedom) == pytest.approx(tail, rel=1e-8)


def test_one_new_observation_against_k_is_the_pooled_two_sample_test():
    baseline, new = np.array([0.0, 0.02, 0.01, -0.01]), np.array([0.06])
    error = math.sqrt(predictive_variance(baseline.var(ddof=1), 4))
    expected = stats.ttest_ind(new, baseline, alternative="greater").pvalue
    assert one_sided_p(new[0] - baseline.mean(), 0.0, error, 3) == pytest.approx(expected)


def test_infinite_degrees_are_the_normal():
    assert one_sided_p(1.0, 0.0, 1.0, math.inf) == pytest.approx(stats.norm.sf(1.0))
    assert interval(0.0, 1.0, math.inf)[1] == pytest.approx(stats.norm.ppf(0.975))
    mixed = one_sided_p([1.0, 1.0], 0.0, 1.0, [math.inf, 3])
    assert mixed.tolist() == pytest.approx([stats.norm.sf(1.0), stats.t.sf(1.0, 3)])


def test_without_any_error_the_sign_decides():
    assert one_sided_p([0.02, 0.01, 0.0], 0.01, 0.0, 9).tolist() == [0.0, 1.0, 1.0]
    assert one_sided_p([0.02, 0.02], 0.01, [0.0, 1e9], 9).tolist() == pytest.approx([0.0, 0.5])
    assert one_sided_p([1.0, -1.0], 0.0, 5e-324, 9).tolist() == [0.0, 1.0]


def test_shapes_broadcast_and_none_is_none():
    assert one_sided_p(np.zeros((3, 1)), np.zeros(4), 1.0, 5).shape == (3, 4)
    assert one_sided_p([], 0.01, [], []).shape == (0,)
    assert isinstance(float(one_sided_p(0.0, 0.0, 1.0, 5)), float)


@given(differences, errors, st.floats(1, 1000), st.floats(0.5, 0.999))
def test_the_interval_holds_what_the_test_does_not_reject(difference, error, freedom, coverage):
    low, high = interval(difference, error, freedom, coverage)
    assert (low, high) == pytest.approx(stats.t.interval(coverage, freedom, difference, error), rel=1e-6, abs=1e-9)
    assert one_sided_p(difference, low, error, freedom) == pytest.approx((1 - coverage) / 2, rel=1e-5)


def test_an_interval_without_error_is_a_point():
    low, high = interval([0.5], 0.0, 3)
    assert (low.tolist(), high.tolist()) == ([0.5], [0.5])


def test_predictive_variance_by_simulation():
    rng = np.random.default_rng(7)
    share, num_sessions, num_processes, draws = 0.3, 5, 3, 200_000

    def night(processes):
        common = rng.normal(0, math.sqrt(share), draws)
        own = rng.normal(0, math.sqrt(1 - share), (processes, draws))
        return common + own.mean(axis=0)

    baseline = np.mean([night(1) for _ in range(num_sessions)], axis=0)
    observed = np.var(night(num_processes) - baseline)
    assert observed == pytest.approx(predictive_variance(1.0, num_sessions, num_processes, share), rel=0.015)


@given(st.floats(0, 1), st.integers(1, 100), st.integers(1, 10), st.floats(0, 1))
def test_more_sessions_or_processes_never_hurt(variance, sessions, processes, share):
    now = predictive_variance(variance, sessions, processes, share)
    assert predictive_variance(variance, sessions + 1, processes, share) <= now
    assert predictive_variance(variance, sessions, processes + 1, share) <= now * (1 + 1e-12)
    assert now <= predictive_variance(variance, sessions, processes) * (1 + 1e-12), (
        "a night share of 1 is the cautious one"
    )


def test_coverage_of_the_interval_for_a_new_night():
    rng, num_sessions = np.random.default_rng(8), 6
    sessions = rng.normal(0, 0.02, (20_000, num_sessions))
    error = np.sqrt(predictive_variance(sessions.var(axis=1, ddof=1), num_sessions))
    low, high = interval(rng.normal(0, 0.02, 20_000) - sessions.mean(axis=1), error, num_sessions - 1)
    assert np.mean((low <= 0) & (high >= 0)) == pytest.approx(0.95, abs=0.006)


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (one_sided_p, (math.nan, 0.0, 1.0, 5), "difference: value 0 of 1 is nan"),
        (one_sided_p, (0.0, math.inf, 1.0, 5), "margin: value 0 of 1 is inf"),
        (one_sided_p, (0.0, 0.0, [1.0, -1.0], 5), "standard_error: value 1 of 2 is -1.0"),
        (one_sided_p, (0.0, 0.0, 1.0, 0), "degrees_of_freedom: value 0 of 1 is 0.0; want more than 0"),
        (one_sided_p, (0.0, 0.0, 1.0, math.nan), "degrees_of_freedom: value 0 of 1 is nan"),
        (predictive_variance, (-1.0, 5), "variance: value 0 of 1 is -1.0"),
        (predictive_variance, (1.0, 0), "num_sessions: value 0 of 1 is 0.0; want at least 1"),
        (predictive_variance, (1.0, 5, 0), "num_processes: value 0 of 1"),
        (predictive_variance, (1.0, 5, 1, 1.5), "night_share: value 0 of 1 is 1.5"),
    ],
)
def test_arguments_that_cannot_be(function, arguments, message):
    with pytest.raises(MeasurementError, match=message):
        function(*arguments)


@pytest.mark.parametrize("coverage", [0.0, 1.0, 95, math.nan])
def test_a_coverage_is_a_fraction(coverage):
    with pytest.raises(ConfigError, match="coverage is"):
        interval(0.0, 1.0, 5, coverage)
