import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.errors import MeasurementError
from pytest_npubench.serving.metrics import RequestRecord, jain_index
from pytest_npubench.serving.metrics.columns import columns_of
from pytest_npubench.serving.metrics.fairness import decode_throughputs, fairness_metrics

from .made_runs import requests

shares = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=20)


def test_the_worked_example():
    assert jain_index([1, 1, 2]) == pytest.approx(16 / 18)


@given(shares)
def test_from_one_nth_to_one(values):
    assert 1 / len(values) <= jain_index(values) <= 1


@given(shares, st.floats(1e-100, 1e100))
def test_units_do_not_matter(values, factor):
    assert jain_index([value * factor for value in values]) == pytest.approx(jain_index(values))


@given(shares, st.randoms())
def test_order_does_not_matter(values, random):
    shuffled = list(values)
    random.shuffle(shuffled)
    assert jain_index(shuffled) == pytest.approx(jain_index(values))


@given(st.integers(1, 50), st.integers(0, 50), st.floats(1e-200, 1e200))
def test_k_of_n_equal_shares_have_k_nths(num_equal, num_empty, share):
    values = [share] * num_equal + [0.0] * num_empty
    assert jain_index(values) == pytest.approx(num_equal / len(values))


@given(st.lists(st.integers(0, 9), min_size=2, max_size=8), st.data())
def test_giving_from_a_richer_to_a_poorer_one_never_makes_it_less_fair(values, data):
    poor, rich = min(values), max(values)
    if rich - poor < 2 or not any(values):
        return
    moved = sorted(values)
    moved[0], moved[-1] = poor + 1, rich - 1
    assert jain_index(moved) > jain_index(values)


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
