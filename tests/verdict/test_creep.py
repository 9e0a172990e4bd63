"""Half a per cent worse every night is never worse than the window; it is worse than the anchor."""

import math

import numpy as np
import pytest
from scipy import stats

from pytest_npubench.verdict import VerdictKind, judge_jointly
from pytest_npubench.verdict.creep import creep_p
from pytest_npubench.verdict.observations import Rule
from pytest_npubench.verdict.simulation.rules import table_of

from .made_suite import kinds


def creeping(seed, num_cases=12, num_nights=20, step=0.005):
    """Window, anchor and tonight; case-0 gets worse by `step` a night, the anchor is older than that."""
    rng = np.random.default_rng(seed)
    entries = rng.normal(0, 0.01, (num_cases, 5 + num_nights + 1))
    entries[0, 5:] += step * np.arange(num_nights + 1)
    names = [f"case-{index}" for index in range(num_cases)]
    sessions = {name: [[[math.exp(entry)]] for entry in entries[row]] for row, name in enumerate(names)}
    window, anchor = ({name: all_[part] for name, all_ in sessions.items()} for part in (slice(5, -1), slice(5)))
    return window, anchor, {name: all_[-1] for name, all_ in sessions.items()}


@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("num_cases", [1, 12])
def test_creep_is_found_by_the_anchor_alone(seed, num_cases):
    window, anchor, tonight = creeping(seed, num_cases)
    held = judge_jointly(window, tonight, rules=Rule(), anchor=anchor)
    assert held.verdicts["case-0"].kind is VerdictKind.REGRESSED
    assert "than the anchor sessions: it crept" in held.verdicts["case-0"].reason
    assert held.suspects[:1] == ("case-0",)
    assert [case for case, verdict in held.verdicts.items() if verdict.failing] == ["case-0"]


def test_without_the_anchor_it_is_not_found():
    window, _, tonight = creeping(0, step=0.002)
    assert "regressed" not in kinds(judge_jointly(window, tonight, rules=Rule()).verdicts).values()


def test_creep_for_the_better_is_none():
    window, anchor, tonight = creeping(1, step=-0.005)
    assert "regressed" not in kinds(judge_jointly(window, tonight, rules=Rule(), anchor=anchor).verdicts).values()


@pytest.mark.parametrize("num_anchor", [0, 1, 2])
def test_an_anchor_of_few_sessions_is_none(num_anchor):
    window, anchor, tonight = creeping(0, step=0.002)
    few = {case: sessions[:num_anchor] for case, sessions in anchor.items()}
    assert judge_jointly(window, tonight, rules=Rule(), anchor=few) == judge_jointly(window, tonight, rules=Rule())


def test_one_case_by_scipy():
    """Spread about the least-squares line, against the anchor's mean."""
    rng = np.random.default_rng(1)
    window, anchor = rng.normal(0, 0.01, (1, 9)) + 0.01 * np.arange(9), rng.normal(0, 0.01, (1, 4))
    line = stats.linregress(np.arange(9), window[0])
    residual = window[0] - line.intercept - line.slope * np.arange(9)
    error = math.sqrt((residual**2).sum() / 7 * (1 + 1 / 4))
    p, difference = creep_p(table_of(window, np.array([[0.03]])), anchor, 0.01, 0.0)
    assert difference[0] == pytest.approx(0.03 - anchor.mean())
    assert p[0] == pytest.approx(stats.t.sf((difference[0] - 0.01) / error, 7))


def test_the_night_counts_among_the_error():
    window, tonight = np.random.default_rng(2).normal(0, 0.01, (1, 9)), np.array([[0.05]])
    anchor = np.zeros((1, 4))
    steady, shaken = (creep_p(table_of(window, tonight), anchor, 0.01, variance)[0][0] for variance in (0.0, 1e-3))
    assert steady < shaken


def test_a_first_jump_is_no_creep_where_cases_jump():
    rng = np.random.default_rng(3)
    window, anchor, tonight = rng.normal(0, 0.005, (200, 20)), rng.normal(0, 0.005, (200, 5)), np.zeros((200, 1))
    tonight[100] = 0.06
    quiet = creep_p(table_of(window, tonight), anchor, 0.01, 0.0)[0][100]
    window[np.arange(8), np.arange(8)] += 0.06
    restless = creep_p(table_of(window, tonight), anchor, 0.01, 0.0)[0][100]
    assert quiet < 1e-6
    assert restless > 5e-4
