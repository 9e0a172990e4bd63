import math
from array import array

import pytest
from hypothesis import given

from pytest_npubench.errors import MeasurementError
from pytest_npubench.serving.metrics import RequestRecord
from pytest_npubench.serving.metrics.columns import columns_of
from pytest_npubench.serving.metrics.stored_times import StoredTimes

from .made_runs import gaps_of, is_finished, requests


def test_the_worked_example():
    record = RequestRecord(arrival_s=1.0, token_times_s=(1.5, 1.6, 1.9), dispatched_s=1.1)
    assert record.ttft_s == pytest.approx(0.5)
    assert record.tbt_s == pytest.approx((0.1, 0.3))
    assert record.tpot_s == pytest.approx(0.2)
    assert record.e2e_latency_s == pytest.approx(0.9)
    assert record.dispatch_lag_s == pytest.approx(0.1)
    assert record.finished


@given(requests())
def test_the_parts_add_up(records):
    for record in records:
        assert list(record.tbt_s) == gaps_of(record)
        assert record.finished == is_finished(record)
        if not record.finished:
            continue
        assert record.ttft_s + sum(record.tbt_s) == pytest.approx(record.e2e_latency_s)
        if record.tpot_s is not None:
            whole = record.ttft_s + record.tpot_s * (len(record.token_times_s) - 1)
            assert whole == pytest.approx(record.e2e_latency_s)


@given(requests(min_size=0))
def test_columns_hold_what_the_records_hold(records):
    columns = columns_of(records)
    gaps = [(gap, index) for index, record in enumerate(records) for gap in gaps_of(record)]
    assert columns.gaps_s.tolist() == [gap for gap, _ in gaps]
    assert columns.gap_request.tolist() == [index for _, index in gaps]
    assert columns.finished.tolist() == [is_finished(record) for record in records]
    for index, record in enumerate(records):
        first, last = columns.first_token_s[index], columns.last_token_s[index]
        if record.token_times_s:
            assert (first, last) == (record.token_times_s[0], record.token_times_s[-1])
        else:
            assert math.isnan(first)
            assert math.isnan(last)


def test_one_token_and_none():
    one = RequestRecord(arrival_s=0.0, token_times_s=(2.0,))
    assert (one.tbt_s, one.tpot_s, one.e2e_latency_s) == ((), None, 2.0)
    none = RequestRecord(arrival_s=0.0, token_times_s=(), id=7)
    assert (none.tbt_s, none.tpot_s, none.finished) == ((), None, False)
    with pytest.raises(MeasurementError, match=r"request 7: ttft_s does not exist: it has no token"):
        _ = none.ttft_s


@pytest.mark.parametrize(
    ("name", "record", "message"),
    [
        ("e2e_latency_s", {"output_tokens": 3}, r"request 4: .* it has 2 of 3 tokens, unfinished"),
        ("e2e_latency_s", {"output_tokens": 2, "aborted": "no memory"}, r"2 of 2 tokens, aborted: no memory"),
        ("dispatch_lag_s", {}, r"request 4: dispatch_lag_s does not exist"),
    ],
)
def test_a_figure_before_its_time(name, record, message):
    with pytest.raises(MeasurementError, match=message):
        getattr(RequestRecord(arrival_s=0.0, token_times_s=(1.0, 2.0), id=4, **record), name)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"arrival_s": math.nan}, r"arrival_s is nan"),
        ({"arrival_s": math.inf}, r"arrival_s is inf"),
        (
            {"token_times_s": (0.5, 2.0)},
            r"token_times_s\[0\] is 0.5; want a finite number, not before arrival_s at 1.0",
        ),
        ({"token_times_s": (math.nan,)}, r"token_times_s\[0\] is nan"),
        ({"token_times_s": (2.0, math.nan, 3.0)}, r"token_times_s\[1\] is nan after 2.0"),
        ({"token_times_s": (2.0, 3.0, 2.5)}, r"token_times_s\[2\] is 2.5 after 3.0; want finite, increasing times"),
        ({"token_times_s": (2.0, math.inf)}, r"token_times_s\[1\] is inf"),
        ({"dispatched_s": 0.9}, r"dispatched_s is 0.9"),
        ({"dispatched_s": 1.5, "scheduled_s": 1.2}, r"scheduled_s is 1.2; want .* not before dispatched_s at 1.5"),
        (
            {"scheduled_s": 2.5, "token_times_s": (2.0,)},
            r"token_times_s\[0\] is 2.0; want .* not before scheduled_s at 2.5",
        ),
        ({"prompt_tokens": 0}, r"prompt_tokens is 0"),
        ({"output_tokens": 0}, r"output_tokens is 0"),
        ({"output_tokens": 1, "token_times_s": (2.0, 3.0)}, r"2 token times; want at most the 1 asked for"),
    ],
)
def test_times_that_cannot_be(fields, message):
    with pytest.raises(MeasurementError, match=rf"request 9: {message}"):
        RequestRecord(**{"arrival_s": 1.0, "token_times_s": (), "id": 9, **fields})


COMPLETE = {"arrival_s": 1.0, "dispatched_s": 1.1, "scheduled_s": 1.2, "prompt_tokens": 5, "output_tokens": 2}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"arrival_s": -math.inf}, r"arrival_s is -inf"),
        ({"arrival_s": 1.15}, r"dispatched_s is 1.1"),
        ({"dispatched_s": 1.3}, r"scheduled_s is 1.2"),
        ({"scheduled_s": 2.5}, r"token_times_s\[0\] is 2.0"),
        ({"scheduled_s": math.nan}, r"scheduled_s is nan"),
        ({"prompt_tokens": 0}, r"prompt_tokens is 0"),
        ({"output_tokens": 0}, r"output_tokens is 0"),
        ({"output_tokens": 1}, r"2 token times"),
        ({"output_tokens": 0, "token_times_s": StoredTimes(array("d"), is_ordered=True)}, r"output_tokens is 0"),
    ],
)
def test_a_record_of_a_log_is_checked_as_any_other(fields, message):
    """Its token times are known to be in order; all else may be wrong."""
    times_s = StoredTimes(array("d", [2.0, 3.0]), is_ordered=True)
    assert RequestRecord(token_times_s=times_s, **COMPLETE).finished
    with pytest.raises(MeasurementError, match=message):
        RequestRecord(**{**COMPLETE, "token_times_s": times_s, **fields})


def test_tokens_that_come_together_have_a_gap_of_0():
    assert RequestRecord(arrival_s=0.0, token_times_s=(1.0, 1.0)).tbt_s == (0.0,)
