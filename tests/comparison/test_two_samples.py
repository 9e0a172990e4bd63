"""K nights against K': Student's test where nothing is borrowed, and what all cases share kept apart."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import brentq

from pytest_npubench.comparison.two_samples import judge_two_samples, weigh_two_samples
from pytest_npubench.errors import ConfigError
from pytest_npubench.verdict import VerdictKind
from pytest_npubench.verdict.observations import Rule


def sessions(entries):
    """One case: session name -> processes -> samples."""
    return {f"s{number}": [[float(np.exp(value))]] for number, value in enumerate(entries)}


def test_the_worked_number():
    """(5 - 1) / sqrt(2 / 3) = 4.90 with 4 degrees."""
    old, new = np.array([[0.0, 0.01, 0.02]]), np.array([[0.05, 0.06, 0.07]])
    found = weigh_two_samples(old, new, Rule(margin=0.01, scale="difference")).difference
    assert found.p(0.01)[0] == pytest.approx(stats.t.sf(4.898979, 4), rel=1e-6) == pytest.approx(0.0040, abs=5e-5)
    assert found.error[0] == pytest.approx(0.0081650, rel=1e-4)


@settings(max_examples=40, deadline=None)
@given(st.integers(3, 12), st.integers(3, 9), st.floats(-0.1, 0.1), st.floats(0, 0.05), st.integers(0, 10_000))
def test_one_case_alone_is_students_two_sample_test(num_old, num_new, effect, margin, seed):
    rng = np.random.default_rng(seed)
    old, new = rng.normal(0, 0.02, num_old), rng.normal(effect, 0.02, num_new)
    found = weigh_two_samples(old[None], new[None], Rule(margin=margin, scale="difference"))
    slower = stats.ttest_ind(new - margin, old, equal_var=True, alternative="greater")
    faster = stats.ttest_ind(new + margin, old, equal_var=True, alternative="less")
    assert found.difference.p(margin)[0] == pytest.approx(slower.pvalue, rel=1e-9, abs=1e-15)
    assert found.difference.p(margin, -1)[0] == pytest.approx(faster.pvalue, rel=1e-9, abs=1e-15)
    (verdict,) = found.verdicts()
    low, high = stats.ttest_ind(new, old, equal_var=True).confidence_interval(0.95)
    assert verdict.interval == pytest.approx((low, high))
    assert verdict.ratio == pytest.approx(new.mean() - old.mean())


def test_the_detectable_change_is_what_four_of_five_find():
    """The MDE that a case is told, planted: its 95 % interval lies beyond the margin about four times in five."""
    rng = np.random.default_rng(3)
    rule = Rule(margin=0.01, scale="difference")
    away = brentq(lambda delta: stats.nct.sf(stats.t.ppf(0.975, 16), 16, delta) - 0.8, 0, 10)
    planted = 0.01 + away * 0.01 * np.sqrt(1 / 10 + 1 / 8)
    sides = ((rng.normal(0, 0.01, (1, 10)), rng.normal(planted, 0.01, (1, 8))) for _ in range(600))
    hits = sum(weigh_two_samples(old, new, rule).difference.p(0.01)[0] < 0.025 for old, new in sides)
    assert 0.72 < hits / 600 < 0.88
    old, new = rng.normal(0, 0.01, 10), rng.normal(0, 0.01, 8)
    (verdict,) = weigh_two_samples(old[None], new[None], rule).verdicts()
    pooled = np.sqrt((9 * old.var(ddof=1) + 7 * new.var(ddof=1)) / 16)
    assert verdict.mde == pytest.approx(0.01 + away * pooled * np.sqrt(1 / 10 + 1 / 8), rel=1e-6)


def test_no_difference_is_no_alarm_and_a_planted_one_is_found_alone():
    """20 cases, nights that differ by 1 % for all alike: 5 % in one case is that case's."""
    rng = np.random.default_rng(0)
    nights_old, nights_new = rng.normal(0, 0.01, 10), rng.normal(0, 0.01, 4)
    old = {f"c{n}": sessions(nights_old + rng.normal(0, 0.003, 10)) for n in range(20)}
    new = {f"c{n}": sessions(nights_new + rng.normal(0, 0.003, 4) + 0.05 * (n == 7)) for n in range(20)}
    judged = judge_two_samples(old, new)
    assert [case for case, verdict in judged.verdicts.items() if verdict.kind is VerdictKind.REGRESSED] == ["c7"]
    assert judged.verdicts["c7"].ratio == pytest.approx(1.05, abs=0.01)
    assert judged.suite.kind is VerdictKind.UNCHANGED
    assert judged.verdicts["c7"].reason.startswith("4 sessions of B against 10 of A, margin 0.01")


def test_a_suite_that_moved_says_so_and_its_cases_are_judged_as_they_stand():
    rng = np.random.default_rng(1)
    old = {f"c{n}": sessions(rng.normal(0, 0.003, 10)) for n in range(20)}
    new = {f"c{n}": sessions(rng.normal(0.05, 0.003, 5)) for n in range(20)}
    judged = judge_two_samples(old, new)
    assert judged.suite.kind is VerdictKind.REGRESSED
    assert judged.suite.ratio == pytest.approx(np.exp(0.05), rel=0.003)
    assert {verdict.kind for verdict in judged.verdicts.values()} == {VerdictKind.REGRESSED}
    mirrored = judge_two_samples(old, new, better="higher")
    assert {verdict.kind for verdict in mirrored.verdicts.values()} == {VerdictKind.IMPROVED}


def test_nights_that_all_cases_share_are_no_evidence_against_each():
    """3 nights a side that differ by 3 % for all cases alike: chance alone moves every case; few such comparisons may
    alarm, and none of them a hundred times over."""
    rng = np.random.default_rng(2)
    alarms = []
    for _ in range(60):
        nights = rng.normal(0, 0.03, 6)
        entries = nights + rng.normal(0, 0.003, (30, 6))
        judged = judge_two_samples(
            {f"c{n}": sessions(row[:3]) for n, row in enumerate(entries)},
            {f"c{n}": sessions(row[3:]) for n, row in enumerate(entries)},
        )
        alarms.append(sum(verdict.kind is VerdictKind.REGRESSED for verdict in judged.verdicts.values()))
    assert sum(map(bool, alarms)) <= 3


def test_intervals_of_a_suite_that_moved_hold_the_nights_too():
    """All cases 10 % slower, nights that differ by 2 %: 95 % intervals hold the truth in about 95 of 100 cases."""
    rng = np.random.default_rng(5)
    held = []
    for _ in range(60):
        nights = np.concatenate([rng.normal(0, 0.02, 6), rng.normal(0.10, 0.02, 5)])
        entries = nights + rng.normal(0, 0.003, (12, 11))
        judged = judge_two_samples(
            {f"c{n}": sessions(row[:6]) for n, row in enumerate(entries)},
            {f"c{n}": sessions(row[6:]) for n, row in enumerate(entries)},
        )
        if judged.suite.kind is VerdictKind.REGRESSED:
            held.append(np.mean([v.interval[0] <= np.exp(0.10) <= v.interval[1] for v in judged.verdicts.values()]))
    assert len(held) > 40
    assert np.mean(held) > 0.87


def test_sessions_of_some_cases_only():
    rng = np.random.default_rng(4)
    old = {f"c{n}": sessions(rng.normal(0, 0.003, 8)) for n in range(10)}
    new = {f"c{n}": sessions(rng.normal(0, 0.003, 4)) for n in range(10)}
    old["c3"] = {name: old["c3"][name] for name in ("s1", "s4", "s6")}
    new["c3"] = {
        name: [[1.1 * value for value in samples] for samples in new["c3"][name]] for name in ("s0", "s1", "s3")
    }
    judged = judge_two_samples(old, new)
    assert judged.verdicts["c3"].kind is VerdictKind.REGRESSED
    assert judged.verdicts["c3"].reason.startswith("3 sessions of B against 3 of A")


def test_what_cannot_be_judged():
    old = {"good": sessions([0, 0.01, 0.02]), "bad": sessions([0, 0.01, 0.02])}
    new = {"good": sessions([0, 0.01, 0.02]), "bad": {**sessions([0, 0.01]), "s9": [[0.0]]}}
    judged = judge_two_samples(old, new)
    assert judged.verdicts["bad"].kind is VerdictKind.INVALID
    assert "session s9: process 0: its better quartile is 0" in judged.verdicts["bad"].reason
    assert list(judged.verdicts) == ["good", "bad"]
    with pytest.raises(ConfigError, match="margin"):
        judge_two_samples(old, new, margin=2)


def test_nights_that_repeat_exactly():
    """No variance at all: what differs beyond the margin is beyond it, what does not is not."""
    old = {"same": sessions([0.0] * 3), "slower": sessions([0.0] * 3)}
    new = {"same": sessions([0.005] * 3), "slower": sessions([0.02] * 3)}
    kinds = {case: verdict.kind for case, verdict in judge_two_samples(old, new).verdicts.items()}
    assert kinds == {"same": VerdictKind.UNCHANGED, "slower": VerdictKind.REGRESSED}
