"""Warming up until steady."""

from itertools import chain, cycle, repeat

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_npubench.campaign.warmup import warm_up


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
