"""Intervals of one run must hold for waiting times, which are alike one after the other."""

import math

import numpy as np
import pytest
from scipy import stats

from pytest_npubench.serving.metrics.intervals import (
    batched_quantile_interval,
    batches,
    jackknife_interval,
    mean_interval,
)
from pytest_npubench.stats.percentile import quantile_interval

NUM_RUNS = 200


def waits(rng, num, load=0.5):
    """Waiting times of an M/M/1 queue that has run for ever: P(W > t) = load exp(-(1 - load) t), service time 1."""
    first = 0.0 if rng.random() > load else rng.exponential(1 / (1 - load))
    steps = rng.exponential(size=num) - rng.exponential(1 / load, size=num)
    sums = first + np.concatenate([[0.0], np.cumsum(steps)])[:num]
    lowest = np.minimum.accumulate(np.minimum(sums, 0.0))
    return sums - lowest


def test_the_worked_number_with_two_batches_more():
    values = [(1, 3), (2, 2), (4, 6), (3, 3), (1, 5)]
    sums = np.array([(2, sum(pair)) for pair in values], dtype=float)
    means = np.array([sum(pair) / 2 for pair in values])
    low, high = jackknife_interval(sums, lambda total: total[1] / total[0])
    half = stats.t.ppf(0.975, 4) * means.std(ddof=1) / math.sqrt(5)
    assert (low, high) == pytest.approx((means.mean() - half, means.mean() + half))
    assert jackknife_interval(sums[:4], lambda total: total[1] / total[0]) is None


def test_batches_follow_one_another_and_are_of_one_size():
    assert batches(3).tolist() == [0, 1, 2]
    assert batches(0).size == 0
    sizes = np.bincount(batches(1234))
    assert sizes.size == 20
    assert sizes.max() - sizes.min() <= 1
    assert (np.diff(batches(1234)) >= 0).all()


def test_a_batch_without_values_is_no_batch():
    batch = np.repeat([0, 3, 4, 9, 11], 2)
    values = np.arange(10.0)
    assert mean_interval(values, batch) == pytest.approx(mean_interval(values, np.repeat(np.arange(5), 2)))
    assert mean_interval(values, np.repeat([0, 1], 5)) is None
    assert batched_quantile_interval(values, np.repeat([0, 1], 5), 0.5) is None


def test_intervals_of_waiting_times_hold_as_often_as_they_say():
    """Those for independent samples do not, which is why there are others."""
    true_mean, true_p90 = 1.0, math.log(5) / 0.5
    mean_held = p90_held = independent_held = 0
    for seed in range(NUM_RUNS):
        values = waits(np.random.default_rng(seed), 2000)
        batch = batches(values.size)
        low, high = mean_interval(values, batch)
        mean_held += low <= true_mean <= high
        low, high = batched_quantile_interval(values, batch, 0.9)
        p90_held += low <= true_p90 <= high
        low, high = quantile_interval(values, 0.9, 0.95)
        independent_held += low <= true_p90 <= high
    assert mean_held / NUM_RUNS > 0.88
    assert p90_held / NUM_RUNS > 0.88
    assert independent_held / NUM_RUNS < 0.75


def test_independent_values_cost_little_width():
    widths = []
    for seed in range(40):
        values = np.random.default_rng(seed).exponential(size=2000)
        low, high = batched_quantile_interval(values, batches(2000), 0.9)
        known_low, known_high = quantile_interval(values, 0.9, 0.95)
        widths.append((high - low) / (known_high - known_low))
    assert 0.95 < np.median(widths) < 1.25


def test_a_hundred_values_bound_no_p99():
    values = np.random.default_rng(0).exponential(size=100)
    assert batched_quantile_interval(values, batches(100), 0.99) is None


def test_values_that_are_all_equal():
    values = np.ones(1000)
    assert batched_quantile_interval(values, batches(1000), 0.9) == (1.0, 1.0)
    assert mean_interval(values, batches(1000)) == (1.0, 1.0)
