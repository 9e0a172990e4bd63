"""Cases that run at one of two speeds, and first jumps of cases that never did."""

import numpy as np
import pytest
from scipy import stats

from pytest_npubench.verdict.jumps import NO_JUMPS, Jumps, rare_jumps
from pytest_npubench.verdict.modes import slower_mode, within_modes
from pytest_npubench.verdict.observations import Rule
from pytest_npubench.verdict.simulation.rules import table_of
from pytest_npubench.verdict.weighing import weigh


def steady(seed, num_cases=30, num_nights=20, deviation=0.005):
    return np.random.default_rng(seed).normal(0, deviation, (num_cases, num_nights))


def test_two_modes_are_told_apart():
    entries = steady(1)
    entries[0, ::2] += 0.06
    entries[1, 3] += 0.06
    mode = slower_mode(entries, 0.01)
    assert mode[0].tolist() == [index % 2 == 0 for index in range(20)]
    assert np.flatnonzero(mode[1]).tolist() == [3]
    assert mode[2:].all()


def test_two_in_five_cases_may_have_two_modes():
    entries = steady(2)
    entries[:12, :10] += 0.06
    assert slower_mode(entries, 0.01)[:12].sum(axis=1).tolist() == [10] * 12
    assert slower_mode(entries, 0.01)[12:].all()


def test_a_restless_case_among_steady_ones_has_one_mode():
    entries = steady(3)
    entries[:10] *= 8
    assert slower_mode(entries, 0.01)[:10].sum() >= 195


@pytest.mark.parametrize("shape", [(7, 20), (30, 5)])
def test_too_few_to_know_what_is_typical(shape):
    entries = steady(4, *shape)
    entries[0, 0] += 0.5
    assert slower_mode(entries, 0.01).all()


def test_gaps_within_the_margin_and_missing_sessions():
    entries = steady(5, deviation=1e-5)
    entries[0, :10] += 0.008
    entries[1, :8] = np.nan
    mode = slower_mode(entries, 0.01)
    assert mode[0].all()
    assert np.flatnonzero(~mode[1]).tolist() == list(range(8))


def test_variance_within_modes_by_hand():
    entries = np.array([[0.0, 2.0, 10.0, 12.0, 14.0], [1.0, np.nan, np.nan, np.nan, np.nan]])
    variance, freedom = within_modes(entries, np.array([[False, False, True, True, True], [True] + [False] * 4]))
    assert (variance[0], freedom.tolist()) == (pytest.approx((2 + 8) / 3), [3.0, 0.0])
    assert np.isnan(variance[1])


def test_a_case_in_its_slow_clock_is_no_regression_and_in_its_fast_one_no_improvement():
    entries = steady(6)
    entries[0, ::3] += 0.06
    tonight = steady(7, 30, 1)
    for clock in (0.0, 0.06):
        tonight[0] = clock
        weighed = weigh(table_of(entries, tonight), Rule())
        assert not weighed.regressed.any()
        assert not weighed.improved.any()
        assert next(weighed.verdicts()).interval[0] < 1.02
    tonight[0] = 0.06 + 0.08
    weighed = weigh(table_of(entries, tonight), Rule())
    assert weighed.regressed[0]
    assert "than the slower of two modes of 20 accepted sessions" in next(weighed.verdicts()).reason


def jumpers(num_once, num_twice):
    entries = np.zeros((300, 20))
    entries[:num_once, 4] = 0.06
    entries[num_once : num_once + num_twice, 5:7] = 0.06
    return entries, (entries > 0) | ~(entries > 0).any(axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("num_once", "num_twice", "jumps"), [(2, 2, 2.0), (2, 0, 2.0), (0, 2, 1.0), (1, 3, 2.0), (5, 1, 5.0)]
)
def test_the_rate_of_first_jumps(num_once, num_twice, jumps):
    found = rare_jumps(*jumpers(num_once, num_twice))
    assert found.rate == pytest.approx(jumps / (20 * (300 - num_once - num_twice)))
    assert found.sizes.tolist() == pytest.approx([0.06] * (num_once + 2 * num_twice))


def test_the_rate_is_about_that_of_first_jumps():
    """Good's estimate, by simulation: cases that jump with any probability a night."""
    rng = np.random.default_rng(8)
    firsts, expected = 0, 0.0
    for _ in range(300):
        chance = np.where(rng.random(200) < 0.25, rng.uniform(0, 0.9, 200), 0.0)
        jumped = rng.random((200, 21)) < chance[:, None]
        history, never = jumped[:, :20], ~jumped[:, :20].any(axis=1)
        mode = history | ~history.any(axis=1, keepdims=True)
        firsts += int((never & jumped[:, 20]).sum())
        expected += rare_jumps(0.06 * history, mode).rate * never.sum()
    assert firsts > 20
    assert firsts / expected == pytest.approx(0.85, abs=0.3)  # the larger of two estimates, so a little too many


def test_lowest_p_by_scipy():
    jumps = Jumps(rate=0.001, sizes=np.array([0.05, 0.07]))
    found = jumps.lowest_p(np.array([0.06]), np.array([0.01]), np.array([12.0]))
    assert found[0] == pytest.approx(0.001 * (stats.t.sf(1, 12) + stats.t.sf(-1, 12)) / 2)
    assert NO_JUMPS.lowest_p(np.ones(3), np.ones(3), np.ones(3)).tolist() == [0.0] * 3


def test_none_without_rare_jumps():
    assert rare_jumps(*jumpers(0, 0)) is NO_JUMPS
    entries = np.zeros((10, 6))
    entries[:, :3] = 0.06
    assert rare_jumps(entries, entries > 0) is NO_JUMPS


def test_a_first_jump_alarms_where_nobody_jumps_and_not_where_some_do():
    quiet = steady(9, 200)
    restless = quiet.copy()
    restless[np.arange(8), np.arange(8)] += 0.06
    tonight = steady(10, 200, 1)
    tonight[100] = 0.06
    assert weigh(table_of(quiet, tonight), Rule()).regressed[100]
    weighed = weigh(table_of(restless, tonight), Rule())
    assert not weighed.regressed.any()
    # what it says it could have seen is beyond the jumps, and is seen
    seen = list(weighed.verdicts())[100].mde
    assert seen > 0.06
    tonight[100] = np.log1p(seen) + 0.01
    assert weigh(table_of(restless, tonight), Rule()).regressed[100]
