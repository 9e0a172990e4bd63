"""What a night does to all cases alike, and when it is no night like the others."""

import numpy as np
import pytest

from pytest_npubench.verdict import VerdictKind, judge_jointly
from pytest_npubench.verdict.observations import Rule
from pytest_npubench.verdict.suite_shift import common_shift, suite_shift

from .made_suite import kinds, slower, suite


def shifted(seed, by, **how):
    baseline, current = suite(seed, **how)
    return baseline, {case: slower(session, by) for case, session in current.items()}


@pytest.mark.parametrize("num_cases", [3, 12, 60])
def test_a_suite_wide_slow_down_regresses_every_case(num_cases):
    judged = judge_jointly(*shifted(1, 0.10, num_cases=num_cases), rules=Rule())
    assert set(kinds(judged.verdicts).values()) == {"regressed"}
    if num_cases >= 8:
        assert judged.suite.kind is VerdictKind.REGRESSED
        assert judged.suite.ratio == pytest.approx(1.10, abs=0.02)
        assert f"{num_cases} cases together are" in judged.suite.reason
    else:
        assert judged.suite is None


def test_a_suite_that_became_better():
    judged = judge_jointly(*shifted(2, -0.10, num_cases=20), rules=Rule())
    assert judged.suite.kind is VerdictKind.IMPROVED
    assert set(kinds(judged.verdicts).values()) == {"improved"}


@pytest.mark.parametrize("seed", range(5))
def test_a_slow_night_among_nights_that_differ_alarms_nobody(seed):
    """Nights differ by 1.5 %: one 2 % slow is usual, taken off, and a planted 8 % in one case is still seen."""
    baseline, current = shifted(seed, 0.02, num_cases=30, num_sessions=15, night=0.015, case=0.003)
    quiet = judge_jointly(baseline, current, rules=Rule())
    assert not any(verdict.failing for verdict in quiet.verdicts.values())
    assert quiet.suite.kind is VerdictKind.UNCHANGED
    assert "subtracted" in quiet.verdicts["case-0"].reason
    current["case-7"] = slower(current["case-7"], 0.08)
    planted = judge_jointly(baseline, current, rules=Rule()).verdicts
    assert [case for case, verdict in planted.items() if verdict.failing] == ["case-7"]


def test_no_case_is_called_unchanged_in_a_suite_that_may_have_moved():
    """Taken off is not gone: 5 % for all, usual among nights that differ by 4 %, is no equivalence within 3 %."""
    baseline, current = shifted(3, 0.05, num_cases=30, num_sessions=15, night=0.04, case=0.002, within=0.001)
    current = {case: slower(session, 0.0) for case, session in current.items()}
    judged = judge_jointly(baseline, current, rules=Rule())
    moved = abs(judged.suite.ratio - 1) > 0.04
    assert judged.suite.kind is VerdictKind.UNCHANGED
    assert moved
    assert "unchanged" not in kinds(judged.verdicts).values()


def test_cases_that_changed_are_not_taken_for_the_night():
    """45 of 100 cases are 6 spreads slower: the median over all of them is where 5 of 55 unchanged ones are."""
    rng = np.random.default_rng(4)
    baseline, current = rng.normal(0, 0.01, (100, 20)), rng.normal(0.002, 0.01, 100)
    current[:45] += 0.06
    assert suite_shift(baseline, current, 0.01).tonight == pytest.approx(0.002, abs=0.004)
    assert np.median(current) > 0.01
    assert suite_shift(baseline, current + 0.06, 0.01).moved


def test_the_shift_is_the_median_over_cases():
    rng = np.random.default_rng(4)
    nights = rng.normal(0, 0.01, 10)
    baseline = rng.normal(0, 1, (9, 1)) + nights
    current = baseline.mean(axis=1) + 0.03
    current[:3] += 1.0  # three of nine cases cannot move a median far
    shift = suite_shift(baseline, current, 0.01)
    assert shift.tonight == pytest.approx(0.03)
    assert shift.nights == pytest.approx(nights - nights.mean())
    error = nights.std(ddof=1) * np.sqrt(1.1)
    assert shift.interval == pytest.approx((0.03 - 2.262157 * error, 0.03 + 2.262157 * error), rel=1e-5)


def test_too_little_to_tell():
    rng = np.random.default_rng(5)
    assert suite_shift(rng.normal(size=(7, 10)), rng.normal(size=7), 0.01) is None
    assert suite_shift(rng.normal(size=(10, 2)), rng.normal(size=10), 0.01) is None
    assert common_shift(rng.normal(size=(7, 5)), 0.01) is None
    sparse = np.full((10, 5), np.nan)
    sparse[:4] = rng.normal(size=(4, 5))
    sparse[:, :2] = rng.normal(size=(10, 2))
    assert suite_shift(sparse, rng.normal(size=10), 0.01) is None


def test_a_night_that_few_cases_have_stays_as_it_is():
    rng = np.random.default_rng(6)
    baseline = rng.normal(0, 0.01, (10, 6))
    baseline[4:, 2] = np.nan
    shift = suite_shift(baseline, rng.normal(0, 0.01, 10), 0.01)
    assert shift.nights[2] == 0
    assert np.all(shift.nights[[0, 1, 3, 4, 5]] != 0)
