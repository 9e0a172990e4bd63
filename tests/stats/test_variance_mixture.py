import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pytest_npubench.errors import MeasurementError
from pytest_npubench.stats.margin_test import one_sided_p, predictive_variance
from pytest_npubench.stats.moderation import VariancePrior, fit_prior, moderated
from pytest_npubench.stats.multiple_testing import rejected
from pytest_npubench.stats.variance_mixture import VarianceMixture, fit_mixture, moderated_by_mixture

rows = st.lists(st.tuples(st.floats(1e-6, 1e3), st.integers(1, 30)), min_size=3, max_size=15)


def two_kinds(rng, num_cases=300, unsteady=0.25, ratio=6.0):
    """Standard deviations of a suite: steady ones of 1 %, the first quarter `ratio` times as wide."""
    deviation = np.full(num_cases, 0.01)
    deviation[: int(unsteady * num_cases)] *= ratio
    return deviation


def test_worked_number():
    mixture = VarianceMixture(variances=np.array([1.0, 9.0]), weights=np.array([0.5, 0.5]), learnt_from=100.0)
    variance, freedom = moderated_by_mixture([math.nan], [0], mixture)
    assert freedom.tolist() == pytest.approx([7.125])
    assert variance.tolist() == pytest.approx([5 * 5.125 / 7.125])


def test_the_matched_t_has_the_moments_of_the_posterior():
    """By drawing from the scaled inverse chi-square it claims."""
    mixture = VarianceMixture(variances=np.array([1.0, 1.5]), weights=np.array([0.4, 0.6]), learnt_from=1e6)
    (variance,), (freedom,) = moderated_by_mixture([1.0], [0], mixture)
    drawn = variance * freedom / np.random.default_rng(1).chisquare(freedom, 400_000)
    assert drawn.mean() == pytest.approx(1.3, rel=0.005)
    assert drawn.std() == pytest.approx(0.5 * math.sqrt(0.24), rel=0.02)


def test_posterior_weighs_by_the_chi_square_density():
    """Bayes' rule with scipy's density, in place of the likelihood up to a factor."""
    mixture = VarianceMixture(variances=np.array([1.0, 4.0]), weights=np.array([0.7, 0.3]), learnt_from=1e6)
    density = [stats.chi2(5, scale=v / 5).pdf(2.0) for v in (1.0, 4.0)]
    high = 0.3 * density[1] / (0.7 * density[0] + 0.3 * density[1])
    mean, second = 1 + 3 * high, 1 + 15 * high
    degrees = 4 + 2 / (second / mean**2 - 1)
    variance, freedom = moderated_by_mixture([2.0], [5], mixture)
    assert freedom.tolist() == pytest.approx([degrees])
    assert variance.tolist() == pytest.approx([mean * (degrees - 2) / degrees])


def test_no_other_distribution_on_the_grid_is_more_likely():
    """Lindsay (1983): weights are the most likely ones iff no grid point's mean likelihood ratio exceeds 1."""
    rng = np.random.default_rng(2)
    variances = two_kinds(rng) ** 2 * rng.chisquare(9, 300) / 9
    mixture = fit_mixture(variances, np.full(300, 9))
    assert mixture.weights.sum() == pytest.approx(1)
    density = stats.chi2.pdf(variances[:, None] * 9 / mixture.variances, 9) / mixture.variances
    gradient = (density / (density @ mixture.weights)[:, None]).mean(axis=0)
    assert gradient.max() < 1.02
    assert (gradient * mixture.weights).sum() == pytest.approx(1)


def test_two_kinds_are_told_apart():
    rng = np.random.default_rng(3)
    variances = two_kinds(rng, 2000) ** 2 * rng.chisquare(9, 2000) / 9
    mixture = fit_mixture(variances, np.full(2000, 9))
    assert mixture.weights[mixture.variances > 5e-4].sum() == pytest.approx(0.25, abs=0.02)
    steady, _ = moderated_by_mixture(variances[500:], np.full(1500, 9), mixture)
    assert np.median(steady) == pytest.approx(1e-4, rel=0.05)


def test_one_kind_is_moderated_as_by_the_conjugate_prior():
    rng = np.random.default_rng(4)
    variances = 8.0 / rng.chisquare(8, 3000) * rng.chisquare(9, 3000) / 9
    nine = np.full(3000, 9)
    variance, freedom = moderated_by_mixture(variances, nine, fit_mixture(variances, nine))
    expected, degrees = moderated(variances, nine, VariancePrior(variance=1.0, degrees_of_freedom=8.0))
    middle = (variances > 0.3) & (variances < 3)  # few cases speak for the ends
    ratio = one_sided_p(3.0, 0.0, np.sqrt(variance), freedom) / one_sided_p(3.0, 0.0, np.sqrt(expected), degrees)
    assert np.median(ratio[middle]) == pytest.approx(1.0, abs=0.15)
    assert np.sqrt(np.mean(np.log(variance / expected)[middle] ** 2)) < 0.15


def test_power_where_a_quarter_of_the_cases_is_unsteady():
    """The reason it exists: 5 % slowdowns of steady cases, and no more false alarms in nights without any."""
    rng, num_sessions, nine = np.random.default_rng(5), 10, np.full(300, 9)
    deviation = two_kinds(rng)
    found = {"mixture": [], "prior": []}
    alarms = {"mixture": 0, "prior": 0}
    for night in range(40):
        variances = deviation**2 * rng.chisquare(9, 300) / 9
        difference = rng.normal(0, deviation * math.sqrt(1.1))
        slowed = np.arange(300) >= (290 if night % 2 else 300)
        for name, (variance, freedom) in {
            "mixture": moderated_by_mixture(variances, nine, fit_mixture(variances, nine)),
            "prior": moderated(variances, nine, fit_prior(variances, nine)),
        }.items():
            error = np.sqrt(predictive_variance(variance, num_sessions))
            alarm = rejected(one_sided_p(difference + 0.05 * slowed, 0.01, error, freedom), 0.05)
            if slowed.any():
                found[name].append(alarm[slowed].mean())
            else:
                alarms[name] += alarm.any()
    assert np.mean(found["mixture"]) > np.mean(found["prior"]) + 0.2
    assert alarms["mixture"] <= 2


@settings(max_examples=40)
@given(rows, st.floats(1e-3, 1e3), st.randoms())
def test_scale_and_order_do_not_matter(cases, scale, random):
    variances, degrees = map(np.array, zip(*cases, strict=True))
    order = list(range(len(cases)))
    random.shuffle(order)
    one, freedom = moderated_by_mixture(variances, degrees, fit_mixture(variances, degrees))
    moved, moved_degrees = variances[order] * scale, degrees[order]
    other, other_freedom = moderated_by_mixture(moved, moved_degrees, fit_mixture(moved, moved_degrees))
    assert other.tolist() == pytest.approx((one[order] * scale).tolist(), rel=1e-5)
    assert other_freedom.tolist() == pytest.approx(freedom[order].tolist(), rel=1e-5)
    assert np.all(freedom <= np.maximum(degrees.sum(), 4))
    assert np.all(one <= variances.max() * (1 + 1e-9))


def test_a_case_unlike_all_of_the_fit_stays_within_the_grid():
    mixture = fit_mixture([1e-8] * 50 + [1.0] * 50, [500] * 100)
    variance, freedom = moderated_by_mixture([1e-20, 1e-4, 1e9], [500] * 3, mixture)
    assert np.all(np.isfinite(variance) & (variance >= 1e-8 * 0.99) & (variance <= 1.01))
    assert np.all(freedom >= 4)


def test_equal_variances_pool():
    variance, freedom = moderated_by_mixture([2.0] * 3, [4] * 3, fit_mixture([2.0] * 3, [4] * 3))
    assert variance.tolist() == pytest.approx([2.0] * 3)
    assert freedom.tolist() == [12.0] * 3


@pytest.mark.parametrize(
    ("variances", "degrees"), [([], []), ([1.0, 2.0], [4, 4]), ([1.0, 2.0, 3.0], [4, 4, 0]), ([0.0] * 4, [4] * 4)]
)
def test_too_little_to_learn_from(variances, degrees):
    assert fit_mixture(variances, degrees) is None
    assert moderated_by_mixture(variances, degrees, None)[0].tolist() == variances


def test_variances_that_cannot_be():
    with pytest.raises(MeasurementError, match="variances: value 1 of 3 is nan"):
        fit_mixture([1.0, math.nan, 1.0], [4] * 3)
