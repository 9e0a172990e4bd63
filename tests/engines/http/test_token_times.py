"""Token times out of deltas."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.engines.http.delta import Delta
from pytest_npubench.engines.http.token_times import EVENTS, LISTED, RUNNING, SPREAD, token_times
from pytest_npubench.errors import MeasurementError

ASKED = 100


def _deltas(*events):
    """(seconds, characters, tokens beside the text, running count) each."""
    return [
        (at_s, Delta(num_chars=chars, num_tokens=tokens, total_tokens=total, finish_reason=""))
        for at_s, chars, tokens, total in events
    ]


@pytest.mark.parametrize(
    ("deltas", "times_s", "counted_by"),
    [
        (_deltas((1.0, 3, None, 1), (1.2, 9, None, 4), (1.3, 2, None, 5)), (1.0, 1.2, 1.2, 1.2, 1.3), RUNNING),
        # a token without text (half a character) is counted too, and at its own time
        (_deltas((1.0, 3, None, 1), (1.1, 0, None, 2), (1.2, 4, None, 3)), (1.0, 1.1, 1.2), RUNNING),
        (_deltas((1.0, 3, 1, None), (1.2, 9, 3, None), (1.3, 0, None, 4)), (1.0, 1.2, 1.2, 1.2), LISTED),
        (_deltas((1.0, 2, None, None), (1.2, 6, None, None), (1.3, 0, None, 4)), (1.0, 1.2, 1.2, 1.2), SPREAD),
        (_deltas((1.0, 2, None, None), (1.2, 6, None, None)), (1.0, 1.2), EVENTS),
        (_deltas((1.0, 2, None, 1)), (1.0,), SPREAD),
        ([], (), ""),
    ],
)
def test_every_token_has_the_time_of_its_event(deltas, times_s, counted_by):
    found = token_times(deltas, ASKED)
    assert (found.times_s, found.counted_by) == (times_s, counted_by)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 5)), min_size=1, max_size=12))
def test_however_deltas_were_merged_all_tokens_are_there_in_order(events):
    """The oracle writes each event's tokens out; spreading keeps their number and at least one token an event."""
    total = sum(tokens for _, tokens in events)
    running, seen = [], 0
    for index, (chars, tokens) in enumerate(events):
        seen += tokens
        running.append((float(index), chars, None, seen))
    expected = tuple(float(index) for index, (_, tokens) in enumerate(events) for _ in range(tokens))
    if len(running) > 1 and all(tokens <= 4 * chars for chars, tokens in events):
        assert token_times(_deltas(*running), ASKED).times_s == expected
    last = [(float(index), chars, None, None) for index, (chars, _) in enumerate(events)]
    spread = token_times(_deltas(*last, (99.0, 0, None, total)), ASKED).times_s
    assert len(spread) == total
    assert list(spread) == sorted(spread)
    num_chars = sum(chars for chars, _ in events)
    if total * min(chars for chars, _ in events) >= num_chars:  # no event is raised to one token
        for index, (chars, _) in enumerate(events):
            assert abs(spread.count(float(index)) - total * chars / num_chars) < 1
    assert set(spread) == {float(index) for index in range(len(events))}


@given(
    st.lists(st.tuples(st.integers(0, 9), st.none() | st.integers(0, 5), st.none() | st.integers(0, 40)), max_size=8),
    st.integers(1, 20),
)
def test_no_more_times_than_were_asked_for_and_the_number_that_came(events, asked):
    """All of them are what a client that was to have 1000 would see."""
    deltas = _deltas(*((float(index), *event) for index, event in enumerate(events)))
    try:
        whole = token_times(deltas, 1000)
    except MeasurementError:
        with pytest.raises(MeasurementError):
            token_times(deltas, asked)
        return
    found = token_times(deltas, asked)
    assert found.times_s == whole.times_s[:asked]
    assert found.num_tokens == whole.num_tokens == len(whole.times_s)


@pytest.mark.parametrize("count", [10**9, 10**30, 10**4000])
@pytest.mark.parametrize("first", [None, 1])
def test_a_count_of_any_size_is_a_number_and_is_not_written_out(count, first):
    found = token_times(_deltas((1.0, 3, None, first), (1.2, 5, None, count)), 4)
    assert found.num_tokens == count
    assert found.times_s == (1.0, 1.0, 1.0, 1.0)
    assert first is None or "more than the text allows" in found.doubt


NUM_TEXTS = 8


@pytest.mark.parametrize(
    ("counts", "last", "why"),
    [
        ([0] * 7 + [8], None, "does not rise with an event that has text"),
        ([1] + [None] * 6 + [8], None, "an event with text has none"),
        ([None, 2] * 4, 8, "an event with text has none"),
        (list(range(8)), 8, "does not rise with an event that has text"),  # it lags by one
        ([1, 1, 2, 3, 4, 5, 6, 7], 8, "does not rise"),
        ([3 * k for k in range(1, 9)], 8, "it falls"),  # an estimate
        ([40 * k for k in range(1, 9)], 8, "more than the text allows"),
        ([8] * 8, 8, ""),
        ([None] * 8, 8, ""),
    ],
)
def test_a_running_count_that_contradicts_the_stream_is_the_total_alone(counts, last, why):
    """Eight events of three signs: a token each, whatever the counts do on their way to eight."""
    events = [(float(index), 3, None, count) for index, count in enumerate(counts)]
    found = token_times(_deltas(*events, (9.0, 0, None, last)), NUM_TEXTS)
    assert (found.times_s, found.counted_by) == (tuple(map(float, range(NUM_TEXTS))), SPREAD)
    assert why in found.doubt
    assert bool(why) is bool(found.doubt)


def test_a_running_count_may_rise_behind_the_text_in_the_event_that_ends_it_alone():
    """The token that ends an answer has no text."""
    deltas = _deltas((1.0, 3, None, 1), (1.1, 3, None, 2), (1.2, 0, None, 3))
    assert "rises after the text" in token_times(deltas, ASKED).doubt
    ended = [*deltas[:2], (1.2, deltas[2][1]._replace(finish_reason="stop"))]
    assert token_times(ended, ASKED).times_s == (1.0, 1.1, 1.2)


@pytest.mark.parametrize(
    ("changes", "num_tokens", "num_unstreamed", "counted_by"),
    [
        ({}, 2, 10, SPREAD),
        ({"has_reasoning": True}, 12, 0, SPREAD),  # it was streamed
        ({"num_tokens": 1}, 2, 10, LISTED),
        ({"num_tokens": 2}, 2, 10, SPREAD),  # four are not two
    ],
)
def test_tokens_that_are_counted_and_not_streamed_are_kept_apart(changes, num_tokens, num_unstreamed, counted_by):
    texts = [(at_s, delta._replace(**changes)) for at_s, delta in _deltas((1.0, 3, None, None), (1.1, 3, None, None))]
    last = Delta(0, None, 12, "", unstreamed_tokens=10)
    found = token_times([*texts, (1.2, last)], ASKED)
    assert (found.num_tokens, found.num_unstreamed, found.counted_by) == (num_tokens, num_unstreamed, counted_by)


@pytest.mark.parametrize(
    ("silent", "num_unstreamed", "first_s"),
    [([40], 40, 5.0), ([2, 3, 4], 4, 5.0), ([2, 3], 0, 0.0)],  # the last: a sign of four bytes
)
@pytest.mark.parametrize("said", [0, 4])
def test_tokens_counted_ahead_of_the_first_text_are_not_its_arrival(silent, num_unstreamed, first_s, said):
    counted = [(float(at), 0, None, number) for at, number in enumerate(silent)]
    texts = [(5.0 + at, 3, None, silent[-1] + at + 1) for at in range(3)]
    deltas = _deltas(*counted, *texts)
    deltas.append((9.0, Delta(0, None, silent[-1] + 3, "stop", unstreamed_tokens=said if num_unstreamed else 0)))
    found = token_times(deltas, ASKED)
    assert (found.num_unstreamed, found.counted_by, found.doubt) == (num_unstreamed, RUNNING, "")
    assert (found.times_s[0], found.times_s[-3:]) == (first_s, (5.0, 6.0, 7.0))


def test_a_usage_of_no_token_beside_text_is_not_believed():
    found = token_times(_deltas((1.0, 3, None, 0), (1.1, 3, None, 0)), ASKED)
    assert (found.times_s, found.counted_by) == ((1.0, 1.1), EVENTS)
    assert "usage not believed" in found.doubt


def test_a_spread_of_many_events_does_not_look_at_all_of_them_for_each_token():
    """20000 events of 1 and 9 signs, of which half have their one token raised from less: minutes, if each were."""
    events = [(float(index), 1 + 8 * (index % 2), None, None) for index in range(20_000)]
    found = token_times(_deltas(*events, (2e4, 0, None, 30_000)), 30_000)
    assert len(found.times_s) == 30_000
    assert {found.times_s.count(0.0), found.times_s.count(2.0)} == {1}


@pytest.mark.parametrize(
    "deltas",
    [
        _deltas((1.0, 1, None, 2), (1.1, 1, None, 1)),  # a count that falls
        _deltas((1.0, 1, None, None), (1.1, 1, None, None), (1.2, 0, None, 1)),  # fewer tokens than events
        _deltas((1.0, 0, None, 3)),  # tokens without any text
    ],
)
def test_counts_that_contradict_the_events_are_named(deltas):
    with pytest.raises(MeasurementError, match="count"):
        token_times(deltas, ASKED)
