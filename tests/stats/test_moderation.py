import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special, stats

from pytest_npubench.errors import MeasurementError
from pytest_npubench.stats.moderation import VariancePrior, fit_prior, inverse_trigamma, moderated


def suite(num_cases, degrees, prior_variance, prior_degrees, seed):
    """Sample variances whose true variances come from the model itself."""
    rng = np.random.default_rng(seed)
    true = prior_variance * prior_degrees / rng.chisquare(prior_degrees, num_cases)
    return true * rng.chisquare(degrees, num_cases) / degrees, true


def test_worked_number():
    variance, freedom = moderated([1.0], [4.0], VariancePrior(variance=4.0, degrees_of_freedom=6.0))
    assert variance.tolist() == pytest.approx([2.8])
    assert freedom.tolist() == [10.0]


@given(st.floats(1e-4, 1e7))
def test_inverse_trigamma_inverts(y):
    assert inverse_trigamma(float(special.polygamma(1, y))) == pytest.approx(y, rel=1e-6)


def test_inverse_trigamma_of_a_known_value():
    assert inverse_trigamma(math.pi**2 / 6) == pytest.approx(1.0, rel=1e-9)
    assert inverse_trigamma(1e9) == pytest.approx(10**-4.5, rel=1e-3)


@pytest.mark.parametrize("degrees", [4, 9])
def test_a_known_prior_is_found_again(degrees):
    variances, _ = suite(20_000, degrees, prior_variance=1e-4, prior_degrees=8.0, seed=1)
    prior = fit_prior(variances, np.full(20_000, degrees))
    assert prior.variance == pytest.approx(1e-4, rel=0.03)
    assert prior.degrees_of_freedom == pytest.approx(8.0, rel=0.1)
    assert prior.learnt_from == 20_000 * degrees


def test_moments_of_the_fitted_prior_are_those_of_the_sample():
    """The scaled F that the prior implies (Smyth 2004, section 6) has the log moments of the sample, by quadrature."""
    degrees = 5.0
    variances, _ = suite(60, degrees, prior_variance=2.0, prior_degrees=4.0, seed=3)
    prior = fit_prior(variances, np.full(60, degrees))
    density = stats.f(degrees, prior.degrees_of_freedom).pdf

    def log_moment(power, centre=0.0):
        return integrate.quad(lambda z: (z - centre) ** power * density(math.exp(z)) * math.exp(z), -60, 60)[0]

    mean = log_moment(1)
    logs = np.log(variances)
    assert mean + math.log(prior.variance) == pytest.approx(logs.mean(), abs=1e-6)
    assert log_moment(2, mean) == pytest.approx(logs.var(ddof=1), rel=1e-6)


def test_moderation_brings_variances_closer_to_the_truth():
    variances, true = suite(300, 4, prior_variance=1.0, prior_degrees=10.0, seed=2)
    posterior, _ = moderated(variances, np.full(300, 4), fit_prior(variances, np.full(300, 4)))
    assert np.mean(np.log(posterior / true) ** 2) < 0.4 * np.mean(np.log(variances / true) ** 2)


def test_moderated_t_holds_its_level_where_the_plain_normal_does_not():
    degrees, rng = 4, np.random.default_rng(5)
    variances, true = suite(40_000, degrees, prior_variance=1.0, prior_degrees=6.0, seed=4)
    posterior, freedom = moderated(variances, np.full(40_000, degrees), fit_prior(variances, np.full(40_000, degrees)))
    t = rng.normal(0, np.sqrt(true)) / np.sqrt(posterior)
    for level in (0.05, 0.01, 0.001):
        share = np.mean(t > stats.t.ppf(1 - level, freedom))
        assert share == pytest.approx(level, abs=4 * math.sqrt(level / 40_000) + 0.05 * level)


def test_equal_variances_pool():
    prior = fit_prior([2.0, 2.0, 2.0, 3.0], [4, 4, 4, 8])
    assert prior.degrees_of_freedom == math.inf
    assert prior.variance == pytest.approx((2 * 12 + 3 * 8) / 20)
    posterior, freedom = moderated([2.0, 9.0], [4.0, 4.0], prior)
    assert posterior.tolist() == pytest.approx([2.4, 2.4])
    assert freedom.tolist() == [20.0, 20.0], "no surer than all cases together"


def test_a_prior_given_by_hand_has_no_cap():
    assert moderated([1.0], [4.0], VariancePrior(variance=1.0, degrees_of_freedom=math.inf))[1].tolist() == [math.inf]


def test_without_a_prior_nothing_changes():
    variance, freedom = moderated([1.0, 0.0], [4, 5], None)
    assert (variance.tolist(), freedom.tolist()) == ([1.0, 0.0], [4.0, 5.0])


def test_a_case_of_one_session_takes_the_prior():
    prior = VariancePrior(variance=4.0, degrees_of_freedom=6.0)
    variance, freedom = moderated([math.nan, 1.0], [0, 4], prior)
    assert variance.tolist() == pytest.approx([4.0, 2.8])
    assert freedom.tolist() == [6.0, 10.0]


def test_it_is_passed_over_in_the_prior():
    variances, _ = suite(50, 4, prior_variance=1.0, prior_degrees=5.0, seed=6)
    alone = fit_prior(variances, np.full(50, 4))
    assert fit_prior([*variances, math.nan, 7.0], [4] * 50 + [0, 0]) == alone


@pytest.mark.parametrize(
    ("variances", "degrees"),
    [([], []), ([1.0, 2.0], [4, 4]), ([1.0, 2.0, 3.0], [4, 4, 0]), ([0.0, 0.0, 0.0, 0.0], [4] * 4)],
)
def test_too_little_to_learn_from(variances, degrees):
    assert fit_prior(variances, degrees) is None


def test_zero_variances_are_floored():
    """At 1e-5 of the median; where that is 0 too, of the median of the positive ones."""
    assert fit_prior([0.0, 1.0, 2.0, 3.0, 4.0], [4] * 5) == fit_prior([2e-5, 1.0, 2.0, 3.0, 4.0], [4] * 5)
    assert fit_prior([0.0, 0.0, 0.0, 1.0], [4] * 4) == fit_prior([1e-5, 1e-5, 1e-5, 1.0], [4] * 4)


@pytest.mark.parametrize(
    ("variances", "degrees", "message"),
    [
        ([1.0, math.nan, 1.0], [4] * 3, "variances: value 1 of 3 is nan"),
        ([1.0, 1.0, -1.0], [4] * 3, "variances: value 2 of 3 is -1.0"),
        ([1.0, 1.0, 1.0], [4, -1, 4], "degrees_of_freedom: value 1 of 3 is -1.0"),
        ([1.0, 1.0, 1.0], [4, 4, math.inf], "degrees_of_freedom: value 2 of 3 is inf"),
        ([1.0, 1.0], [4], r"shape \(2,\) with degrees_of_freedom of shape \(1,\)"),
    ],
)
def test_variances_that_cannot_be(variances, degrees, message):
    with pytest.raises(MeasurementError, match=message):
        fit_prior(variances, degrees)
    with pytest.raises(MeasurementError, match=message):
        moderated(variances, degrees, None)


rows = st.lists(st.tuples(st.floats(1e-9, 1e3), st.integers(1, 30)), min_size=3, max_size=20)


@settings(max_examples=60)
@given(rows, st.floats(1e-6, 1e6), st.randoms())
def test_scale_and_order_do_not_matter(cases, scale, random):
    variances, degrees = map(np.array, zip(*cases, strict=True))
    order = list(range(len(cases)))
    random.shuffle(order)
    prior = fit_prior(variances, degrees)
    other = fit_prior(variances[order] * scale, degrees[order])
    # spread of next to nothing may fall on either side of 0
    if math.isinf(prior.degrees_of_freedom) or prior.degrees_of_freedom > 1e6:
        assert other.degrees_of_freedom > 1e5
        return
    assert other.degrees_of_freedom == pytest.approx(prior.degrees_of_freedom, rel=1e-6)
    assert other.variance == pytest.approx(prior.variance * scale, rel=1e-6)


@given(rows, st.floats(1e-9, 1e3), st.floats(0.01, 1e6))
def test_a_posterior_lies_between_case_and_prior(cases, variance, degrees):
    variances, freedom = map(np.array, zip(*cases, strict=True))
    posterior, _ = moderated(variances, freedom, VariancePrior(variance=variance, degrees_of_freedom=degrees))
    assert np.all(posterior >= np.minimum(variances, variance) * (1 - 1e-12))
    assert np.all(posterior <= np.maximum(variances, variance) * (1 + 1e-12))
