"""One round: every point, shuffled, each for a like share of the time, a failing one alone; and the warm-up before."""

import gc
from collections import Counter
from itertools import chain, cycle, repeat

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_npubench.campaign.rounds import failure_reason, measure_round
from pytest_npubench.campaign.visits import Timing
from pytest_npubench.campaign.warmup import warm_up
from pytest_npubench.errors import DeviceUnavailableError, ImpureProfileError
from pytest_npubench.suites.buckets.points import MAX_VISITS, BucketPoint

POINTS = [BucketPoint(name=name) for name in "abcde"]
EVEN = dict.fromkeys("abcde", 0.5)


def run(points, durations_s, sampler, seed=0):
    order, ticks = [], []

    def sample(point, round_index):
        assert round_index == seed
        order.append(point.name)
        return Timing(seconds=sampler(point))

    samples, failures, duration_s = measure_round(points, durations_s, sample, seed, lambda: ticks.append(0))
    assert duration_s >= 0
    return samples, failures, order, len(ticks)


def test_nothing_is_collected_while_a_round_runs():
    was_on = gc.isenabled()
    gc.enable()
    try:
        seen = []
        run(POINTS, EVEN, lambda point: seen.append(gc.isenabled()) or 0.5)
        assert (set(seen), gc.isenabled()) == ({False}, True)
    finally:
        if not was_on:
            gc.disable()


@pytest.mark.parametrize(
    ("duration_s", "num"),
    [(9.0, 1), (0.5, 1), (0.26, 1), (0.25, 2), (0.1, 5), (0.0833, 6), (1e-6, 6), (0.0, 6), (float("nan"), 6)],
)
def test_half_a_seconds_worth_of_visits(duration_s, num):
    assert BucketPoint(name="p").visits(duration_s) == num


def test_a_point_may_ask_for_more_or_less_of_the_time():
    assert BucketPoint(name="p", visit_s=1.0).visits(0.25) == 4
    assert BucketPoint(name="p", visit_s=0.05).visits(0.25) == 1


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(1e-4, 3.0), min_size=1, max_size=12), st.integers(0, 10**6))
def test_every_point_has_its_visits(durations_s, seed):
    points = [BucketPoint(name=str(index)) for index in range(len(durations_s))]
    known = {point.name: duration_s for point, duration_s in zip(points, durations_s, strict=True)}
    samples, failures, order, num_ticks = run(points, known, lambda point: known[point.name], seed)
    assert failures == {}
    expected = {name: min(MAX_VISITS, max(1, int(0.5 / duration_s))) for name, duration_s in known.items()}
    assert Counter(order) == expected
    assert samples == {name: (known[name],) * num for name, num in expected.items()}
    assert num_ticks == len(order)


def test_a_seed_gives_one_order_and_each_round_another():
    orders = [tuple(run(POINTS, EVEN, lambda point: 1.0, seed)[2]) for seed in (0, 0, 1, 2)]
    assert orders[0] == orders[1]
    assert len(set(orders)) == 3


def test_each_point_comes_first_equally_often():
    """Else drift within a round would fall on the same points each time. 5 of 1000 rounds: 200 +- 4 x 12.6."""
    first = Counter(run(POINTS, EVEN, lambda point: 1.0, seed)[2][0] for seed in range(1000))
    assert all(abs(first[name] - 200) < 51 for name in "abcde")


def test_visits_of_a_point_are_spread_over_the_round():
    """Six of each of five points: half of a round has three of each, give or take the one that lies about its middle. A
    plain shuffle has a point with one or none of them there in one of twenty-five rounds."""
    for seed in range(50):
        order = run(POINTS, dict.fromkeys("abcde", 0.01), lambda point: 0.01, seed)[2]
        assert all(2 <= num <= 4 for num in Counter(order[:15]).values())
        assert set(order[:15]) == set("abcde")


def test_a_point_that_fails_is_not_visited_again_and_keeps_no_samples():
    calls = Counter()

    def sampler(point):
        calls[point.name] += 1
        if point.name == "c" and calls["c"] == 2:
            raise RuntimeError("lost\nmore")
        return 0.01

    samples, failures, order, num_ticks = run(POINTS, dict.fromkeys("abcde", 0.01), sampler)
    assert failures == {"c": "c: RuntimeError: lost"}
    assert samples.keys() == set("abde")
    assert Counter(order) == {"a": 6, "b": 6, "c": 2, "d": 6, "e": 6}
    assert num_ticks == 30  # what a progress line was told to expect


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1e-9])
def test_a_sample_that_is_no_time_fails_its_point(value):
    samples, failures, _, _ = run(POINTS, EVEN, lambda point: value if point.name == "b" else 1.0)
    assert samples.keys() == set("acde")
    assert failures["b"].startswith(f"b: sample 0 of 1 is {value!r}; want a finite number of seconds")


def test_an_interrupt_goes_through():
    def sampler(point):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(POINTS, EVEN, sampler)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ImpureProfileError("profile point of bucket 64: left it"), "profile point of bucket 64: left it"),
        (DeviceUnavailableError("gone"), "p: gone"),
        (ValueError("first\nsecond"), "p: ValueError: first"),
        (ValueError("\n  first\nsecond"), "p: ValueError: first"),
        (OSError(), "p: OSError: no message"),
    ],
)
def test_a_reason_is_one_line(error, reason):
    assert failure_reason("p", error) == reason


class Clock:
    """Gives out the samples and counts them."""

    def __init__(self, samples_s):
        self._samples_s = iter(samples_s)
        self.given_s = []

    def __call__(self) -> float:
        self.given_s.append(next(self._samples_s))
        return self.given_s[-1]


def test_three_that_agree_are_enough():
    clock = Clock(repeat(0.01))
    assert warm_up(clock) == (0.01, True)
    assert len(clock.given_s) == 3


def test_a_slow_start_is_warmed_away():
    clock = Clock(chain([1.0, 0.3, 0.1], cycle([0.010, 0.011])))
    assert warm_up(clock) == (0.010, True)
    assert clock.given_s == [1.0, 0.3, 0.1, 0.010, 0.011, 0.010]


def test_one_that_never_agrees_ends_and_says_so():
    clock = Clock(cycle([0.1, 0.2]))
    assert warm_up(clock, max_repeats=12) == (0.2, False)
    assert len(clock.given_s) == 12


@pytest.mark.parametrize(("step", "steady"), [(0.95, True), (0.90, False)])
def test_a_drift_is_steady_where_three_of_its_samples_lie_within_the_tolerance(step, steady):
    """0.95^-2 = 1.108 lies within 15 %, 0.90^-2 = 1.235 does not."""
    assert warm_up(Clock(step**index for index in range(100)), max_s=1e9)[1] is steady


def test_a_long_sample_is_taken_twice_only():
    clock = Clock([2.0, 2.0])
    assert warm_up(clock, max_s=3.0) == (2.0, False)


def test_samples_of_no_time_are_steady():
    assert warm_up(Clock(repeat(0.0))) == (0.0, True)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(1e-6, 10.0), min_size=20, max_size=20), st.integers(2, 15), st.floats(0.1, 20.0))
def test_how_often_it_samples(samples_s, max_repeats, max_s):
    clock = Clock(samples_s)
    latest_s, steady = warm_up(clock, max_repeats=max_repeats, max_s=max_s)
    taken = clock.given_s
    assert 2 <= len(taken) <= max(2, max_repeats)
    assert latest_s == taken[-1]
    windows = [taken[index : index + 3] for index in range(len(taken) - 2)]
    agree = [max(window) <= min(window) * 1.15 for window in windows]
    assert not any(agree[:-1])  # it would have ended there
    assert steady == (bool(agree) and agree[-1])
    if not steady and len(taken) < max_repeats:
        assert sum(taken) >= max_s
