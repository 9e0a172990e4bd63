"""Change points against brute force over all segmentations, and their false alarms and power on made noise."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_npubench.store.history.change_points import MIN_SEGMENT, PENALTY, _segmented, change_points

STEP = [0.01 * (-1) ** index + (0.1 if index >= 10 else 0.0) for index in range(20)]


def cost(values, begins):
    edges = [0, *begins, len(values)]
    parts = [values[i:j] for i, j in itertools.pairwise(edges)]
    return sum(float(((part - part.mean()) ** 2).sum()) for part in parts) + PENALTY * math.log(len(values)) * len(
        begins
    )


def brute_force(values):
    """The least cost over every segmentation with at least MIN_SEGMENT values a segment."""
    places = range(MIN_SEGMENT, len(values) - MIN_SEGMENT + 1)
    every = itertools.chain.from_iterable(itertools.combinations(places, number) for number in range(4))
    allowed = (begins for begins in every if all(j - i >= MIN_SEGMENT for i, j in itertools.pairwise(begins)))
    return min(cost(values, begins) for begins in allowed)


@settings(max_examples=100)
@given(st.lists(st.integers(-6, 6), min_size=6, max_size=12))
@example([0, 0, 2, 1, 4, 6, 0, 0])  # PELT's pruning, which we do without, misses the best one here
def test_the_segmentation_is_the_best_of_all(numbers):
    values = np.array(numbers, dtype=float)
    assert cost(values, _segmented(values)) == pytest.approx(brute_force(values))


def test_the_worked_example():
    assert change_points(STEP) == (10,)


def test_two_changes_and_their_order():
    assert change_points([*STEP, *(value - 0.3 for value in STEP[:10])]) == (10, 20)


@given(st.floats(-5, 5), st.floats(0.2, 20))
def test_another_unit_or_direction_changes_nothing(shift, factor):
    assert change_points([value + shift for value in STEP]) == (10,)
    assert change_points([-value * factor for value in STEP]) == (10,)
    assert change_points(STEP[::-1]) == (10,)


@pytest.mark.parametrize("num_values", range(6))
def test_a_short_series_has_none(num_values):
    assert change_points([0.0, 0.0, 0.0, 9.0, 9.0][:num_values]) == ()


def test_one_slow_night_is_no_change():
    for place in range(20):
        assert change_points([0.01 * (-1) ** index + (1.0 if index == place else 0.0) for index in range(20)]) == ()


def test_figures_that_repeat_exactly():
    assert change_points([0.0] * 20) == ()
    assert change_points([0.0] * 10 + [0.02] * 10) == (10,)
    assert change_points([0.0] * 10 + [0.009] * 10) == ()  # certain, and below 1 %


def test_heavy_tails_are_no_changes():
    """Of 100 series of 100 sessions, Student's t with 3 degrees, t tests between segments called 15 changed."""
    noise = 0.02 * np.random.default_rng(1).standard_t(3, (100, 100))
    assert sum(bool(change_points(series)) for series in noise) <= 4


@pytest.mark.parametrize(("num_sessions", "least_power"), [(12, 0.4), (20, 0.8), (60, 0.98)])
def test_false_alarms_and_power_on_normal_noise(num_sessions, least_power):
    """300 series of 2 % noise: at most 2 % alarm (binomial: 1 % gives up to 8 of 300); of 50 a 5 % step is found."""
    rng = np.random.default_rng(11)
    noise = rng.normal(0, 0.02, (300, num_sessions))
    assert sum(bool(change_points(series)) for series in noise) <= 8
    steps = noise[:50] + np.where(np.arange(num_sessions) >= num_sessions // 2, 0.05, 0.0)
    found = [change_points(series) for series in steps]
    assert np.mean([bool(begins) for begins in found]) >= least_power
    near = [any(abs(begin - num_sessions // 2) <= 1 for begin in begins) for begins in found if begins]
    assert np.mean(near) >= 0.9
