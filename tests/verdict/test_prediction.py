"""One night's p against explicit sums and integrals with scipy's Student t, and what it is made of."""

import numpy as np
import pytest
from scipy import integrate, stats

from pytest_npubench.verdict.noise_law import Nights, fit_law
from pytest_npubench.verdict.prediction import ANYWHERE, CHANGES, GAPS, SHARES, TWO_SPEEDS, SuiteTail, fit_tail, refer


def nights_of(entries):
    return Nights(entries=np.array(entries), variance=np.ones_like(entries))


@pytest.fixture(scope="module")
def made():
    """Twelve cases of nine nights, one night missing and one a mean of three processes."""
    rng = np.random.default_rng(3)
    nights = nights_of(rng.normal(0, rng.uniform(0.005, 0.02, (12, 1)), (12, 9)))
    nights.entries[2, 4] = np.nan
    nights.variance[2, 7] = 0.5
    law = fit_law(nights)
    return law, nights, refer(law, nights)


def density(law, scale, level, entries, variance):
    """Of all nights of a case."""
    known = np.isfinite(entries)
    return np.prod(stats.t.pdf(entries[known], law.freedom, level, scale * np.sqrt(variance[known])))


def weights_of(law, nights, levels, row, left_out=None):
    """By explicit loops, normalised."""
    entries = nights.entries[row].copy()
    if left_out is not None:
        entries[left_out] = np.nan
    shares = np.exp(law.log_weights)
    weights = np.array(
        [
            [share * density(law, scale, level, entries, nights.variance[row]) for level in levels[row]]
            for share, scale in zip(shares, law.scales, strict=True)
        ]
    )
    return weights / weights.sum()


def test_p_is_the_integral_over_levels_and_scales(made):
    law, nights, reference = made
    for row, tonight in ((0, 0.02), (2, -0.01), (7, 0.05)):
        middle, room = np.nanmedian(nights.entries[row]), reference.levels[row, -1] - reference.levels[row, 7]
        above = below = 0.0
        for share, scale in zip(np.exp(law.log_weights), law.scales, strict=True):

            def likelihood(level, scale=scale, row=row):
                return density(law, scale, level, nights.entries[row], nights.variance[row])

            def slower(level, scale=scale, likelihood=likelihood, tonight=tonight):
                return likelihood(level) * stats.t.sf(tonight, law.freedom, level, scale)

            ends = {"a": middle - 2 * room, "b": middle + 2 * room, "points": [middle], "limit": 200}
            above += share * integrate.quad(slower, **ends)[0]
            below += share * integrate.quad(likelihood, **ends)[0]
        values = np.full(12, tonight)
        assert reference.p(values)[row] == pytest.approx(above / below, rel=0.06)
        assert reference.p(values, -1)[row] == pytest.approx(1 - above / below, rel=0.06)


def test_a_night_left_out_is_as_if_it_had_not_been(made):
    """The p is that of its first process, from all processes of the other nights."""
    law, nights, _ = made
    first = nights.entries + 0.003
    reference = refer(law, nights, first)
    for row, night in ((0, 3), (2, 7), (11, 8)):
        weights = weights_of(law, nights, reference.levels, row, left_out=night)
        tails = stats.t.sf(first[row, night], law.freedom, reference.levels[row], law.scales[:, None])
        assert reference.left_out[row, night] == pytest.approx((weights * tails).sum(), rel=1e-3)
    assert np.isnan(reference.left_out[2, 4])
    left = np.zeros((12, 9), dtype=bool)
    left[0, 3] = True
    assert reference.without(left).weights[0] == pytest.approx(
        weights_of(law, nights, reference.levels, 0, left_out=3), rel=1e-3, abs=1e-9
    )


def test_two_speeds_are_the_mixture_written_out(made):
    law, nights, reference = made
    gone = nights_of(np.full((12, 2), np.nan))
    gone.entries[4, 0] = 0.055
    for row in (0, 4):
        every = np.append(nights.entries[row], gone.entries[row])
        prior = TWO_SPEEDS
        above = below = 0.0
        for share, scale in zip(np.exp(law.log_weights), law.scales, strict=True):
            for level in reference.levels[row]:
                single = share * density(law, scale, level, nights.entries[row], nights.variance[row])
                single *= 1 - prior
                above += single * stats.t.sf(0.06, law.freedom, level, scale)
                below += single
                for gap in GAPS:
                    at = [stats.t.pdf(every[np.isfinite(every)], law.freedom, level + by, scale) for by in (0, gap)]
                    tails = [stats.t.sf(0.06, law.freedom, level + by, scale) for by in (0, gap)]
                    for slow in SHARES:
                        mixed = np.prod((1 - slow) * at[0] + slow * at[1]) / (ANYWHERE * CHANGES) ** (row == 4)
                        mixed *= share * prior / (len(SHARES) * len(GAPS))
                        above += mixed * ((1 - slow) * tails[0] + slow * tails[1])
                        below += mixed
        (p,) = reference.p_of_two_speeds(np.full(12, 0.06), np.array([row]), gone)
        assert p == pytest.approx(above / below, rel=1e-3)
    assert reference.p_of_two_speeds(np.full(12, 0.06), np.array([4]), gone)[0] > 10 * reference.p(np.full(12, 0.06))[4]


@pytest.mark.parametrize(("degrees", "expected"), [(3.0, {3.0, 4.0}), (np.inf, {7.0})])
def test_the_law_finds_scale_and_tails(degrees, expected):
    rng = np.random.default_rng(5)
    draws = rng.normal(size=(120, 20)) if np.isinf(degrees) else rng.standard_t(degrees, (120, 20))
    law = fit_law(nights_of(0.01 * draws))
    assert law.freedom in expected
    middle = np.exp(np.exp(law.log_weights) @ np.log(law.scales))
    assert middle == pytest.approx(0.01, rel=0.15)


def test_p_is_uniform_where_the_law_is_right():
    """1200 case-nights of equal, normal noise from 5 accepted nights: a tenth below 0.1, a hundredth below 0.01."""
    rng = np.random.default_rng(6)
    entries = rng.normal(0, 0.01, (1200, 6))
    nights = nights_of(entries[:, :5])
    p = refer(fit_law(nights), nights).p(entries[:, 5])
    assert 0.07 < np.mean(p < 0.1) < 0.13
    assert np.mean(p < 0.01) < 0.02
    assert np.mean(p > 0.5) == pytest.approx(0.5, abs=0.05)


def test_the_tail_is_that_of_the_suite():
    """Uniform p have an excess of 1; those of a tail that falls half as fast have 2 there."""
    rng = np.random.default_rng(7)
    p = rng.random(20000)
    tail = fit_tail(p)
    assert (tail.excess, tail.start) == (pytest.approx(1.05, abs=0.1), pytest.approx(-np.log(0.05), abs=0.05))
    heavy = fit_tail(np.where(p < 0.05, 0.05 * (p / 0.05) ** 2, p))
    assert heavy.excess == pytest.approx(2.0, abs=0.15)
    assert heavy.calibrated(np.array([heavy.p_at(1e-6)]))[0] == pytest.approx(1e-6)
    worked = SuiteTail(share=0.05, start=3.0, excess=1.5)
    assert worked.calibrated(np.array([1e-5]))[0] == pytest.approx(1.7e-4, rel=0.03)


@pytest.mark.parametrize(
    ("power", "num_nights", "is_light"), [(0.5, 6000, True), (0.5, 1000, False), (1.0, 6000, False)]
)
def test_a_tail_is_light_where_many_nights_prove_it(power, num_nights, is_light):
    """-log p beyond the upper 5 % falls off within half of what the law says, or as it says."""
    p = np.random.default_rng(8).random(num_nights)
    tail = fit_tail(np.where(p < 0.05, 0.05 * (p / 0.05) ** power, p))
    assert tail.is_light is is_light
    assert tail.excess == pytest.approx(0.6 if is_light else 1.0, abs=0.15)


def test_p_of_a_mean_of_processes_has_its_variance(made):
    law, nights, reference = made
    values, scale = np.full(12, 0.03), law.scales[:, None] * np.sqrt(0.6)
    expected = (
        weights_of(law, nights, reference.levels, 0) * stats.t.sf(0.03, law.freedom, reference.levels[0], scale)
    ).sum()
    assert reference.p(values, variance=np.full(12, 0.6))[0] == pytest.approx(expected, rel=1e-3)
