import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.errors import MeasurementError
from pytest_npubench.serving.metrics import RequestRecord, jain_index
from pytest_npubench.serving.metrics.columns import columns_of
from pytest_npubench.serving.metrics.fairness import decode_throughputs, fairness_metrics

from .made_runs import requests


def test_the_worked_example():
    assert jain_index([1, 1, 2]) == pytest.approx(16 / 18)


@given(st.lists(st.just(0.0) | st.floats(1e-200, 1e200), min_size=1, max_size=20).filter(any))
def test_it_is_the_definition_in_exact_fractions(values):
    exact = [Fraction(value) for value in values]
    assert jain_index(values) == pytest.approx(float(sum(exact) ** 2 / (len(exact) * sum(x * x for x in exact))))
    assert 1 / len(values) <= jain_index(values) <= 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "no values"),
        ([0, 0], "all 2 are 0"),
        ([1, -1], "value 1 of 2 is -1.0"),
        ([math.nan], "value 0 of 1 is nan"),
    ],
)
def test_values_without_an_index(values, message):
    with pytest.raises(MeasurementError, match=message):
        jain_index(values)


@given(requests())
def test_the_shares_are_decode_throughputs(records):
    speeds = []
    for record in records:
        times = record.token_times_s
        if len(times) > 1 and times[-1] > times[0]:
            speeds.append((len(times) - 1) / (times[-1] - times[0]))
    found, known = decode_throughputs(columns_of(records))
    assert found.tolist() == pytest.approx(speeds)
    assert int(known.sum()) == len(speeds)
    (metric,) = fairness_metrics(columns_of(records))
    if speeds:
        expected = sum(speeds) ** 2 / (len(speeds) * sum(speed**2 for speed in speeds))
        assert metric.value == pytest.approx(expected)
        assert metric.num_samples == len(speeds)
    else:
        assert metric.value is None
        assert "has two tokens at two times" in metric.note


def test_a_request_served_at_half_speed_shows():
    fast = [RequestRecord(arrival_s=0.0, token_times_s=(1.0, 2.0, 3.0)) for _ in range(3)]
    slow = RequestRecord(arrival_s=0.0, token_times_s=(1.0, 3.0, 5.0))
    assert fairness_metrics(columns_of(fast))[0].value == 1.0
    assert fairness_metrics(columns_of([*fast, slow]))[0].value == pytest.approx(3.5**2 / (4 * 3.25))
