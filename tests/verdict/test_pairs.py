"""Interleaved pairs against scipy's paired t test."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pytest_npubench.verdict import VerdictKind, judge_pairs
from pytest_npubench.verdict.observations import Rule
from pytest_npubench.verdict.paired import weigh_pairs

from .made_suite import kinds


def pairs_of(differences):
    """Pairs of one sample each whose log ratios B / A are the differences."""
    return [((2.0,), (2.0 * math.exp(difference),)) for difference in differences]


def made(seed, num_cases, num_pairs=5, common=0.0, deviation=0.005):
    rng = np.random.default_rng(seed)
    rows = rng.normal(0, deviation, (num_cases, num_pairs)) + rng.normal(0, common, num_pairs)
    return {f"case-{index}": pairs_of(row) for index, row in enumerate(rows)}


@settings(max_examples=60)
@given(st.lists(st.floats(-0.05, 0.1), min_size=3, max_size=12).filter(lambda x: np.std(x) > 1e-4))
def test_one_case_is_the_paired_t_test(differences):
    verdict = judge_pairs({"a": pairs_of(differences)}).verdicts["a"]
    test = stats.ttest_1samp(differences, math.log(1.01), alternative="greater")
    low, high = stats.ttest_1samp(differences, 0.0).confidence_interval(0.95)
    assert verdict.ratio == pytest.approx(math.exp(np.mean(differences)))
    assert verdict.interval == pytest.approx((math.exp(low), math.exp(high)))
    p = weigh_pairs(np.array([differences]), Rule()).difference.p(math.log(1.01))[0]
    assert p == pytest.approx(test.pvalue)
    assert (verdict.kind is VerdictKind.REGRESSED) == (low > math.log(1.01))


def test_higher_is_better_turns_the_sides_round():
    slower = {"a": pairs_of([0.1, 0.11, 0.09])}
    assert kinds(judge_pairs(slower).verdicts) == {"a": "regressed"}
    assert kinds(judge_pairs(slower, better="higher").verdicts) == {"a": "improved"}


@pytest.mark.parametrize("num_cases", [3, 20])
def test_a_planted_one_is_found_and_the_others_stay(num_cases):
    pairs = made(1, num_cases, common=0.02)
    pairs["case-1"] = [(first, tuple(1.3 * value for value in second)) for first, second in pairs["case-1"]]
    found = judge_pairs(pairs)
    assert [case for case, verdict in found.verdicts.items() if verdict.failing] == ["case-1"]
    assert (found.suite is None) == (num_cases < 8)


def test_what_disturbs_all_cases_of_a_pair_is_in_the_error():
    """With 2 % between pairs for all alike, no case can be told to 1 %, however well the cases agree."""
    quiet, shaken = (judge_pairs(made(2, 40, common=common)).verdicts["case-0"] for common in (0.0, 0.02))
    assert quiet.interval[1] - quiet.interval[0] < 0.02
    assert shaken.interval[1] - shaken.interval[0] > 0.03


def test_all_slower_is_the_suite():
    pairs = {case: [(a, tuple(1.1 * v for v in b)) for a, b in all_] for case, all_ in made(3, 12).items()}
    found = judge_pairs(pairs)
    assert set(kinds(found.verdicts).values()) == {"regressed"}
    assert found.suite.kind is VerdictKind.REGRESSED
    assert found.suite.ratio == pytest.approx(1.1, abs=0.01)


def test_too_few_pairs_and_unequal_numbers():
    pairs = made(4, 3) | {"few": pairs_of([0.5, 0.5]), "none": [], "more": pairs_of([0.2, 0.21, 0.19, 0.2, 0.2, 0.21])}
    found = judge_pairs(pairs).verdicts
    assert list(found) == list(pairs)
    assert found["few"].reason == "2 pairs; want 3 or more"
    assert found["none"].kind is VerdictKind.INCONCLUSIVE
    assert found["more"].kind is VerdictKind.REGRESSED
    assert "over 6 pairs" in found["more"].reason


def test_a_pair_without_a_side_is_invalid():
    found = judge_pairs({"a": [((1.0,), (1.0,)), ((1.0,),)], "b": [((1.0,), (math.nan,))] * 3}).verdicts
    assert found["a"].reason == "want a list of pairs, each the samples of A and those of B"
    assert found["b"].reason == "process 0: sample 0 is not a finite number"
