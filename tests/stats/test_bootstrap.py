import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_npubench.errors import ConfigError, MeasurementError
from pytest_npubench.stats.bootstrap import hierarchical_ratio_interval
from pytest_npubench.stats.margin_test import interval, predictive_variance


def night(rng, num_processes=1, night_sd=0.01, process_sd=0.005, within_sd=0.03, shift=0.0):
    common = shift + rng.normal(0, night_sd)
    return [
        np.exp(common + rng.normal(0, process_sd) + rng.normal(0, within_sd, 20)).tolist() for _ in range(num_processes)
    ]


def test_worked_number():
    baseline = [[[1.0]], [[math.exp(0.02)]]]
    low, high = hierarchical_ratio_interval(baseline, [[math.exp(0.05)]])
    assert (low, high) == pytest.approx((0.04 - 2 * 0.0917, 0.04 + 2 * 0.0917), abs=2e-4)


def test_constants_give_their_ratio():
    assert hierarchical_ratio_interval([[[2.0]] * 2] * 3, [[3.0, 3.0]]) == pytest.approx((math.log(1.5),) * 2)


def test_one_night_says_nothing_of_nights():
    assert hierarchical_ratio_interval([[[1.0, 1.1]]], [[1.0]]) is None
    assert hierarchical_ratio_interval([], [[1.0]]) is None


@pytest.mark.parametrize(
    "design",
    [
        {"num_nights": 10, "num_processes": 1, "night_sd": 0.01},
        {"num_nights": 10, "num_processes": 3, "night_sd": 0.01},
        {"num_nights": 10, "num_processes": 1, "night_sd": 0.0, "process_sd": 0.0},
        {"num_nights": 5, "num_processes": 1, "night_sd": 0.02},
    ],
)
def test_coverage_when_nights_differ(design):
    """About 95 %, whether nights differ much or not at all."""
    num_nights, design = design["num_nights"], {k: v for k, v in design.items() if k != "num_nights"}
    rng, hits, runs = np.random.default_rng(13), 0, 250
    for seed in range(runs):
        baseline = [night(rng, **design) for _ in range(num_nights)]
        current = night(rng, **design, shift=0.05)
        low, high = hierarchical_ratio_interval(baseline, current, num_resamples=300, seed=seed)
        hits += low <= 0.05 <= high
    assert 0.88 <= hits / runs <= 0.99


def test_agrees_with_the_predictive_t_interval():
    """With constant samples the nights are all there is, and the gate's interval is the answer."""
    rng = np.random.default_rng(14)
    nights = rng.normal(0, 0.01, 30)
    low, high = hierarchical_ratio_interval([[[math.exp(x)]] for x in nights], [[math.exp(0.05)]], num_resamples=20_000)
    error = math.sqrt(predictive_variance(nights.var(ddof=1), 30))
    expected = interval(0.05 - nights.mean(), error, 29)
    assert (low, high) == pytest.approx(expected, abs=0.15 * float(expected[1] - expected[0]))


@settings(max_examples=25)
@given(st.integers(0, 1000), st.floats(0.01, 100), st.floats(0.5, 2))
def test_units_cancel_and_slowness_shows(seed, unit, slowdown):
    rng = np.random.default_rng(seed)
    baseline, current = [night(rng) for _ in range(4)], night(rng, 2)
    low, high = hierarchical_ratio_interval(baseline, current, num_resamples=100)

    def scaled(processes, factor):
        return [[x * factor for x in samples] for samples in processes]

    moved = hierarchical_ratio_interval(
        [scaled(one, unit) for one in baseline], scaled(current, unit * slowdown), num_resamples=100
    )
    assert moved == pytest.approx((low + math.log(slowdown), high + math.log(slowdown)), abs=1e-9)
    wider = hierarchical_ratio_interval(baseline, current, num_resamples=100, coverage=0.99)
    assert wider[0] < low < high < wider[1]


def test_the_seed_decides():
    rng = np.random.default_rng(15)
    baseline, current = [night(rng) for _ in range(4)], night(rng)
    one = hierarchical_ratio_interval(baseline, current)
    assert hierarchical_ratio_interval(baseline, current) == one
    assert hierarchical_ratio_interval(baseline, current, seed=1) != one


@pytest.mark.parametrize(
    ("baseline", "current", "options", "error", "message"),
    [
        ([[[1.0]], []], [[1.0]], {}, MeasurementError, "baseline session 1: no processes"),
        ([[[1.0]], [[]]], [[1.0]], {}, MeasurementError, "baseline session 1, process 0: no values"),
        ([[[1.0]]], [], {}, MeasurementError, "current: no processes"),
        (
            [[[1.0]]],
            [[1.0, 0.0]],
            {},
            MeasurementError,
            "current, process 0: value 1 of 2 is 0.0; want more than 0 sec",
        ),
        ([[[1.0]]], [[math.nan]], {}, MeasurementError, "current, process 0: value 0 of 1 is nan"),
        ([[[1.0]]], [[1.0]], {"coverage": 95}, ConfigError, "coverage is 95"),
        ([[[1.0]]], [[1.0]], {"num_resamples": 10}, ConfigError, "num_resamples is 10; want at least 100"),
    ],
)
def test_data_that_cannot_be(baseline, current, options, error, message):
    with pytest.raises(error, match=message):
        hierarchical_ratio_interval(baseline, current, **options)
