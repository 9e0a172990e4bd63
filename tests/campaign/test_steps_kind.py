"""Latency steps: the interval against scipy's own, and what a staircase with a step too many is told."""

import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from pytest_npubench.suites.buckets.kinds.steps import KIND, Jump, jump, lengths
from pytest_npubench.verdict import VerdictKind

from .conftest import cases, measured

LIMIT = math.log(1.10)


def of_bucket(plan, bucket):
    return next(case for case in cases(plan, "steps") if case.axis("bucket") == bucket)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.5, 2.0), st.floats(-0.2, 0.2)), min_size=2, max_size=12),
    st.sampled_from([1.0, 1.05, 1.15, 1.5]),
)
def test_a_jump_is_what_the_t_interval_of_the_log_ratio_says(rounds, ratio):
    left_s = [level for level, _ in rounds]
    right_s = [level * ratio * math.exp(noise) for level, noise in rounds]
    logs = [math.log(right) - math.log(left) for left, right in zip(left_s, right_s, strict=True)]
    assume(stats.sem(logs) > 1e-9)
    low, high = stats.t.interval(0.99, len(logs) - 1, loc=sum(logs) / len(logs), scale=stats.sem(logs))
    assume(min(abs(abs(end) - LIMIT) for end in (low, high)) > 1e-9)
    kind, found = jump(left_s, right_s)
    if low > LIMIT or high < -LIMIT:
        assert kind is Jump.OBSERVED
    elif low >= -LIMIT and high <= LIMIT:
        assert kind is Jump.ABSENT
    else:
        assert kind is Jump.UNCLEAR
    assert found == pytest.approx(stats.gmean(right_s) / stats.gmean(left_s))


def test_one_round_is_not_enough():
    assert jump([1.0], [3.0]) == (Jump.UNCLEAR, pytest.approx(3.0))


def test_drift_that_rounds_share_does_not_hide_a_jump():
    """Each round twice as slow as the one before: unpaired, nothing could be said."""
    left_s = [2.0**index for index in range(5)]
    right_s = [1.3 * value * (1 + 0.001 * index) for index, value in enumerate(left_s)]
    assert jump(left_s, right_s)[0] is Jump.OBSERVED
    assert jump(left_s, [value * (1 + 0.001 * index) for index, value in enumerate(left_s)])[0] is Jump.ABSENT


def test_how_often_no_jump_is_called_one():
    """Rounds with 3 % noise and no jump: 400 tries, of which the 99 % interval allows none to lie beyond 10 %."""
    noise = stats.norm(scale=0.03).rvs(size=(400, 2, 6), random_state=1)
    kinds = [jump([math.exp(x) for x in left], [math.exp(x) for x in right])[0] for left, right in noise]
    assert Jump.OBSERVED not in kinds
    assert kinds.count(Jump.ABSENT) > 200


@pytest.mark.parametrize(
    ("bucket", "expected"),
    [(16, (8, 15, 16, 17)), (32, (24, 31, 32, 33)), (64, (48, 63, 64))],
)
def test_lengths_around_a_boundary(bucket, expected):
    assert lengths((16, 32, 64), bucket) == expected


@settings(max_examples=100, deadline=None)
@given(st.sets(st.integers(1, 300), min_size=1, max_size=6))
def test_lengths_stay_in_the_bucket_but_for_one_beyond(found):
    buckets = tuple(sorted(found))
    for floor, bucket in zip((0, *buckets), buckets, strict=False):
        around = lengths(buckets, bucket)
        assert list(around) == sorted(set(around))
        inside = [length for length in around if length <= bucket]
        assert all(floor < length for length in inside)
        assert bucket in inside
        assert [length for length in around if length > bucket] == ([] if bucket == buckets[-1] else [bucket + 1])


def test_a_staircase_as_declared_passes_and_names_the_jump(plan):
    for bucket, reason in (
        (16, "flat inside 16; jump to the next bucket observed: x1.80"),
        (32, "flat inside 32; jump to the next bucket observed: x2.06"),
        (64, "flat inside 64, the largest bucket"),
    ):
        case = of_bucket(plan, bucket)
        verdict = KIND.judge(case, plan, measured(KIND.points(case, plan), plan)).verdict
        assert (verdict.kind, verdict.reason) == (VerdictKind.PASSED, reason)


@pytest.mark.parametrize(
    ("slow_from", "reason"),
    [(15, "8 to 15: x1.50"), (16, "15 to 16: x1.50")],
    ids=["before the last two", "at the last"],
)
def test_a_step_nobody_declared_fails(plan, slow_from, reason):
    case = of_bucket(plan, 16)
    own = measured(KIND.points(case, plan), plan)
    for row in own.rounds:
        row.update({name: tuple(1.5 * v for v in row[name]) for name in row if int(name[5:]) >= slow_from})
    verdict = KIND.judge(case, plan, own).verdict
    assert verdict.kind is VerdictKind.FAILED
    assert verdict.reason == f"latency jumps inside bucket 16, where no boundary is declared: {reason}"


def test_a_declared_boundary_without_a_jump_passes_and_says_so(plan):
    case = of_bucket(plan, 16)
    own = measured(KIND.points(case, plan), plan)
    for row in own.rounds:
        row["step/17"] = row["step/16"]
    verdict = KIND.judge(case, plan, own).verdict
    assert (verdict.kind, verdict.reason) == (
        VerdictKind.PASSED,
        "flat inside 16; jump to the next bucket absent: x1.00",
    )
