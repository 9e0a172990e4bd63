import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.errors import ConfigError, MeasurementError
from pytest_npubench.serving.metrics import RequestRecord, Slo, attainment_split, slo_attainment

from .made_runs import gaps_of, is_finished, requests

limits = st.integers(1, 64).map(lambda number: number / 16)


def record(arrival, *times, **fields):
    return RequestRecord(arrival_s=arrival, token_times_s=times, **fields)


def by_loops(records, slo):
    both = ttft = tbt = 0
    for one in records:
        in_time = bool(one.token_times_s) and one.token_times_s[0] - one.arrival_s <= slo.ttft_s
        smooth = is_finished(one) and all(gap <= slo.tbt_s for gap in gaps_of(one))
        both, ttft, tbt = both + (in_time and smooth), ttft + in_time, tbt + smooth
    return both, ttft, tbt


def test_the_worked_example():
    records = [record(0, 0.4, 0.5, 0.6), record(0, 0.4, 0.7), record(0, 0.9, 1.0), record(0, output_tokens=3)]
    assert attainment_split(records, Slo(ttft_s=0.5, tbt_s=0.2)) == (0.25, 0.5, 0.5)


def test_every_gap_counts_and_not_their_mean():
    times = (*(1 + index / 100 for index in range(100)), 3.0)
    late_once = record(0.0, *times)
    slo = Slo(ttft_s=1.0, tbt_s=0.1)
    assert late_once.tpot_s < slo.tbt_s
    assert slo_attainment([late_once], slo) == 0.0


def test_a_value_at_its_limit_meets_it_in_floats_too():
    assert 0.8 - 0.7 > 0.1
    assert slo_attainment([record(0.0, 0.7, 0.8)], Slo(ttft_s=0.7, tbt_s=0.1)) == 1.0
    assert slo_attainment([record(0.0, 0.7, 0.80001)], Slo(ttft_s=0.7, tbt_s=0.1)) == 0.0


@given(requests(), limits, limits)
def test_loops_give_the_same(records, ttft_s, tbt_s):
    slo = Slo(ttft_s=ttft_s, tbt_s=tbt_s)
    counts = by_loops(records, slo)
    assert attainment_split(records, slo) == tuple(count / len(records) for count in counts)
    assert slo_attainment(records, slo) == counts[0] / len(records)


def test_unfinished_and_aborted_requests_do_not_attain():
    slo = Slo(ttft_s=1.0, tbt_s=1.0)
    fine_so_far = record(0.0, 0.5, 0.6, output_tokens=3)
    assert attainment_split([fine_so_far], slo) == (0.0, 1.0, 0.0)
    aborted = record(0.0, 0.5, 0.6, output_tokens=2, aborted="no memory")
    assert attainment_split([aborted], slo) == (0.0, 1.0, 0.0)
    finished = record(0.0, 0.5, 0.6, output_tokens=2)
    assert attainment_split([finished], slo) == (1.0, 1.0, 1.0)


def test_arrived_requests_without_a_record_count():
    slo = Slo(ttft_s=1.0, tbt_s=1.0)
    assert slo_attainment([record(0.0, 0.5)], slo, num_arrived=4) == 0.25
    assert slo_attainment([], slo, num_arrived=4) == 0.0
    with pytest.raises(MeasurementError, match="1 records of 0 arrived"):
        slo_attainment([record(0.0, 0.5)], slo, num_arrived=0)
    with pytest.raises(MeasurementError, match="0 records of 0 arrived"):
        slo_attainment([], slo)


@pytest.mark.parametrize(
    ("ttft", "tbt", "expected"),
    [
        ("10s", "125ms", (10.0, 0.125)),
        (" 2.5 s ", "35 ms", (2.5, 0.035)),
        ("500us", ".5ms", (0.0005, 0.0005)),
    ],
)
def test_limits_with_units(ttft, tbt, expected):
    slo = Slo.parse(ttft, tbt)
    assert (slo.ttft_s, slo.tbt_s) == expected


@pytest.mark.parametrize("text", ["10", "", "s", "10 m", "10min", "-1s", "1e3s", "nan s", "inf", "1,5s", 10, None, 0.1])
def test_a_limit_without_a_unit_is_refused(text):
    with pytest.raises(ConfigError, match=r"TTFT limit is .*; want a number with a unit of s, ms or us"):
        Slo.parse(text, "125ms")
    with pytest.raises(ConfigError, match=r"TBT limit is "):
        Slo.parse("10s", text)


@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf, True, "10s", None])
def test_limits_that_cannot_be(value):
    with pytest.raises(ConfigError, match=r"SLO ttft_s is .*; want a finite number of seconds above 0"):
        Slo(ttft_s=value, tbt_s=0.1)
    with pytest.raises(ConfigError, match=r"SLO tbt_s is "):
        Slo(ttft_s=10.0, tbt_s=value)
    with pytest.raises(ConfigError, match=r"SLO ttft_s is 0.0"):
        Slo.parse("0s", "1ms")
