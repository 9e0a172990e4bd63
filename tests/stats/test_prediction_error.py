import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pytest_npubench.errors import ConfigError, MeasurementError
from pytest_npubench.stats.error import (
    case_error,
    jackknife_half_width,
    noise_in_gate,
    repeat_error,
    summarise,
    t_half_width,
)

pairs = st.lists(st.tuples(st.floats(0, 100), st.floats(0.01, 100)), min_size=1, max_size=20)


def test_worked_number():
    error = case_error([1.1, 1.8], [1.0, 2.0])
    assert error.num_requests == 2
    assert error.sum_error == pytest.approx(-1 / 30)
    assert error.mape == pytest.approx(0.1)
    assert error.gate_value == error.mape


def test_the_gate_takes_the_sum_where_long_requests_are_worse():
    error = case_error([1.0, 12.0], [1.0, 10.0])
    assert error.gate_value == abs(error.sum_error) > error.mape


@given(pairs)
def test_case_error_is_the_definition(values):
    error = case_error(*zip(*values, strict=True))
    total = math.fsum(m for _, m in values)
    assert error.sum_error == pytest.approx((math.fsum(p for p, _ in values) - total) / total, abs=1e-9)
    assert error.mape == pytest.approx(math.fsum(abs(p - m) / m for p, m in values) / len(values), rel=1e-9)


def test_an_exact_prediction_has_no_error():
    assert case_error(2.0, 2.0).gate_value == 0.0


@pytest.mark.parametrize(
    ("predicted", "measured", "message"),
    [
        ([], [], "predicted_s: no values"),
        ([1.0], [1.0, 2.0], "1 predicted and 2 measured values"),
        ([1.0, math.nan], [1.0, 1.0], "predicted_s: value 1 of 2 is nan"),
        ([1.0], [math.inf], "measured_s: value 0 of 1 is inf"),
        ([1.0, 1.0], [1.0, 0.0], "measured_s: value 1 is 0.0; want more than 0"),
    ],
)
def test_cases_that_cannot_be_compared(predicted, measured, message):
    with pytest.raises(MeasurementError, match=message):
        case_error(predicted, measured)


def test_summary_by_hand():
    summary = summarise([-0.02, 0.01, 0.04, -0.05, 0.10])
    assert summary.num_cases == 5
    assert summary.signed_mean == pytest.approx(0.016)
    assert summary.mean == pytest.approx(0.044)
    assert summary.median == 0.04
    assert summary.p90 == pytest.approx(0.08)  # 0.05 + 0.6 (0.10 - 0.05), linear between the ranks
    assert summary.max == 0.10
    assert summary.under_5_percent_fraction == 0.6  # 5 % itself is not under 5 %


@pytest.mark.parametrize(("errors", "message"), [([], "no values"), ([0.1, math.nan], "value 1 of 2 is nan")])
def test_summaries_that_cannot_be(errors, message):
    with pytest.raises(MeasurementError, match=message):
        summarise(errors)


def test_repeat_error():
    assert repeat_error([9.0, 10.0, 11.0]) == pytest.approx(1 / math.sqrt(3) / 10)
    assert repeat_error([9.0, 10.0, 11.5, 9.5]) == pytest.approx(stats.sem([9.0, 10.0, 11.5, 9.5]) / 10.0)
    assert repeat_error([5.0]) is None
    for samples in ([], [math.nan], [0.0, 0.0]):
        with pytest.raises(MeasurementError):
            repeat_error(samples)


def test_half_width_of_one_estimate_is_students():
    low, high = stats.t.interval(0.9, 7, scale=2.0)
    half = t_half_width(np.array([4.0]), np.array([7.0]), 0.9)
    assert (-half, half) == pytest.approx((low, high))


def test_half_width_of_a_difference_is_welchs():
    first, second = [1.0, 2.0, 4.0, 4.5], [7.0, 9.0, 5.0, 12.0, 6.0, 8.0]
    variances = np.array([np.var(values, ddof=1) / len(values) for values in (first, second)])
    interval = stats.ttest_ind(first, second, equal_var=False).confidence_interval(0.95)
    half = t_half_width(variances, np.array([3.0, 5.0]), 0.95)
    assert half == pytest.approx((interval.high - interval.low) / 2)


def test_half_width_takes_columns_and_zero_variance():
    half = t_half_width(np.array([[4.0, 0.0], [0.0, 0.0]]), np.array([7.0, 3.0]), 0.9)
    assert half.tolist() == pytest.approx([2.0 * stats.t.ppf(0.95, 7), 0.0])
    with pytest.raises(ConfigError, match=r"coverage is 1.0"):
        t_half_width(np.array([4.0]), np.array([7.0]), 1.0)


def test_the_jackknife_of_a_mean_is_the_interval_of_the_mean():
    """scipy's own t interval; of two rounds there is none."""
    values = np.array([9.0, 10.0, 11.5, 8.0, 10.2])
    left_out = [float(np.delete(values, index).mean()) for index in range(len(values))]
    low, high = stats.t.interval(0.95, len(values) - 1, loc=values.mean(), scale=stats.sem(values))
    assert jackknife_half_width(left_out) == pytest.approx((high - low) / 2)
    assert jackknife_half_width([1.0, 2.0]) is None


@pytest.mark.parametrize(("known_to", "noise"), [(0.03, 0.01), (0.06, 0.05), (0.0, 0.0)])
def test_noise_in_a_mean_of_absolute_errors_by_hand(known_to, noise):
    """Errors of 0.05 and -0.05; two values d apart, each the other's round left out, have a standard error of d / 2."""
    error = case_error([1.05, 0.95], [1.0, 1.0])
    left_out = [case_error([1.05 + side, 0.95 - side], [1.0, 1.0]) for side in (known_to, -known_to)]
    assert noise_in_gate(error, left_out) == pytest.approx(noise, abs=1e-12)
