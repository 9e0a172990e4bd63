import math

import pytest

from pytest_npubench.verdict import VerdictKind
from pytest_npubench.verdict.exact import judge_exact


def sessions(*values):
    return [[[value]] for value in values]


@pytest.mark.parametrize(
    ("accepted", "now", "better", "kind"),
    [
        ((4096, 4096, 4096), 4096, "lower", "unchanged"),
        ((4096, 4096, 4096), 4097, "lower", "regressed"),
        ((4096, 4096, 4096), 4095, "lower", "improved"),
        ((4096, 4096, 4096), 4097, "higher", "improved"),
        ((4096, 4096, 4096), 4095, "higher", "regressed"),
        ((4096,), 4097, "lower", "regressed"),
        ((4096, 5000, 4096), 4500, "lower", "unchanged"),
        ((4096, 5000, 4096), 5001, "lower", "regressed"),
        ((0, 0), 0, "lower", "unchanged"),
        ((0, 0), 1, "lower", "regressed"),
        ((), 1, "lower", "no-baseline"),
    ],
)
def test_any_change_is_one(accepted, now, better, kind):
    assert judge_exact(sessions(*accepted), [[now]], better=better).kind.value == kind


def test_back_to_what_was_before_an_accepted_improvement_is_a_regression():
    assert judge_exact(sessions(5000, *[4096] * 5), [[5000]]).kind is VerdictKind.REGRESSED
    assert judge_exact(sessions(5000, *[4096] * 4), [[5000]]).kind is VerdictKind.UNCHANGED


def test_the_worst_value_of_a_session_counts():
    assert judge_exact(sessions(8, 8), [[8, 9, 8]]).kind is VerdictKind.REGRESSED
    assert judge_exact(sessions(8, 8), [[8], [9]]).kind is VerdictKind.REGRESSED
    assert judge_exact(sessions(8, 8), [[9, 8]], better="higher").kind is VerdictKind.UNCHANGED


def test_ratio_and_reason():
    verdict = judge_exact(sessions(4096), [[4100]])
    assert verdict.ratio == pytest.approx(4100 / 4096)
    assert verdict.reason == "4100, accepted 4096: a counter that repeats exactly"
    assert judge_exact(sessions(0), [[1]]).ratio is None


@pytest.mark.parametrize("junk", [[], [[]], [[math.nan]], [["8"]], None, 8])
def test_junk(junk):
    assert judge_exact(sessions(8, 8), junk).kind is VerdictKind.INVALID
    assert judge_exact([[[8]], junk], [[8]]).kind is VerdictKind.INCONCLUSIVE


@pytest.mark.parametrize("better", ["lower", "higher"])
def test_a_counter_that_repeats_but_for_a_margin(better):
    """0.1 % of 100,000: 100 more or less is nothing, 101 is a change in either direction."""
    for now, moved in ((100_100, False), (99_900, False), (100_101, True), (99_899, True)):
        verdict = judge_exact([[[100_000.0]]], [[float(now)]], better=better, margin=0.001)
        assert (verdict.kind is not VerdictKind.UNCHANGED) is moved
        assert ("repeats within 0.10%" in verdict.reason) is moved
    assert judge_exact([[[100_000.0]]], [[100_001.0]], better=better).kind is not VerdictKind.UNCHANGED
