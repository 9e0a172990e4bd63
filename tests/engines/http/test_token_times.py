"""Events out of bytes, deltas out of events, token times out of deltas."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.engines.http import delta as delta_module
from pytest_npubench.engines.http.arrived import EventStream
from pytest_npubench.engines.http.delta import Delta, parse
from pytest_npubench.engines.http.token_times import EVENTS, LISTED, RUNNING, SPREAD, token_times
from pytest_npubench.errors import MeasurementError

EVENT_BYTES, ASKED = 2**16, 100


@given(
    st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), min_size=1), max_size=6),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.data(),
)
def test_events_are_the_same_however_the_bytes_are_cut(texts, newline, data):
    stream = "".join(f": comment{newline}event: x{newline}data: {text}{newline}{newline}" for text in texts).encode()
    stream += b"\n" if newline == "\r" else b""  # a lone CR at the very end may still become a CRLF
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    events, found = EventStream(EVENT_BYTES), []
    for first, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += events.feed(stream[first:stop])
    assert found == texts


def test_data_of_several_lines_is_one_event():
    assert EventStream(EVENT_BYTES).feed(b"data: a\ndata:b\n\ndata: c\n") == ("a\nb",)


@given(st.lists(st.binary(max_size=40) | st.sampled_from([b"data: ", b"data:", b"\n", b"\r", b"\r\n", b": x"])))
def test_of_whatever_bytes_no_more_than_one_event_is_kept(chunks):
    events = EventStream(64)
    for chunk in chunks:
        try:
            found = events.feed(chunk)
        except MeasurementError:
            return
        assert all(len(event.encode()) <= 64 for event in found)
        assert len(events._rest) <= 64
        assert len(events._data) <= 64


@pytest.mark.parametrize("chunk", [b"data: " + b"x" * 70, b"data: xxxxxxx\n" * 10, b": " + b"x" * 70])
def test_an_event_or_a_line_that_is_too_long_is_named(chunk):
    with pytest.raises(MeasurementError, match="an event of more than 64 bytes"):
        EventStream(64).feed(chunk)


def test_bytes_that_are_no_text_are_named():
    with pytest.raises(MeasurementError, match="no UTF-8"):
        EventStream(EVENT_BYTES).feed(b"data: \xff\n\n")


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({"choices": [{"text": "ab"}]}, (2, None, None, False)),
        ({"choices": [{"delta": {"content": "ab"}, "finish_reason": "stop"}]}, (2, None, None, True)),
        ({"choices": [{"delta": {"role": "assistant", "content": None}}]}, (0, None, None, False)),
        ({"choices": [{"delta": {"reasoning_content": "abc"}}]}, (3, None, None, False)),
        ({"choices": [{"text": "ab", "logprobs": {"tokens": ["a", "b"]}}]}, (2, 2, None, False)),
        ({"choices": [{"delta": {"content": "a"}, "logprobs": {"content": [{}]}}]}, (1, 1, None, False)),
        ({"choices": [{"text": "a", "token_ids": [1, 2, 3]}]}, (1, 3, None, False)),
        ({"choices": [], "usage": {"completion_tokens": 7}}, (0, None, 7, False)),
        ({"choices": [{"text": "a"}], "usage": None}, (1, None, None, False)),
    ],
)
def test_what_an_event_says(event, expected):
    delta = parse(json.dumps(event))
    assert (delta.num_chars, delta.num_tokens, delta.total_tokens, delta.finished) == expected


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ("{", "malformed stream"),
        ("[1]", "want a JSON object"),
        ("{}", "no list of choices"),
        ('{"error": {"message": "out of blocks"}}', "out of blocks"),
    ],
)
def test_what_is_no_event_is_named(event, words):
    with pytest.raises(MeasurementError, match=words):
        parse(event)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.text(max_size=3), parts, max_size=3),
    max_leaves=5,
)
FIELDS = ("text", "delta", "finish_reason", "token_ids", "logprobs", "content", "completion_tokens")
SOME_FIELDS = st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS, ANYTHING)) | ANYTHING


@given(
    st.fixed_dictionaries(
        {"choices": st.lists(SOME_FIELDS, max_size=2)},
        optional={"usage": SOME_FIELDS, "error": ANYTHING},
    )
)
def test_whatever_types_an_event_holds_it_is_a_delta_or_named_in_one_line(event):
    named = None
    try:
        delta = parse(json.dumps(event))
    except MeasurementError as error:
        named = str(error)
    if named is not None:
        assert named.isprintable()
        assert len(named) < 300
        return
    assert delta.num_chars >= 0
    for number in (delta.num_tokens, delta.total_tokens):
        assert number is None or (type(number) is int and number >= 0)


TEXT = st.none() | st.text() | st.sampled_from(["\ud800", "", "é"])
USUAL = st.fixed_dictionaries(
    {
        "choices": st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "text": TEXT,
                    "delta": st.none() | st.fixed_dictionaries({}, optional={"content": TEXT, "reasoning": TEXT}),
                    "finish_reason": TEXT,
                    "token_ids": st.none() | st.lists(st.integers(0, 9)),
                    "logprobs": st.none() | st.just({"tokens": ["a", "b"]}),
                    "index": ANYTHING,
                },
            ),
            max_size=2,
        )
    },
    optional={
        "usage": st.none() | st.fixed_dictionaries({}, optional={"completion_tokens": st.integers(-1) | st.floats()}),
        "error": st.none() | st.just({}),
        "id": ANYTHING,
    },
)


@given(USUAL)
def test_an_event_is_the_same_whether_it_is_read_as_a_usual_one_or_as_any(event):
    text = json.dumps(event)
    found = []
    for read in (parse, delta_module._any):
        try:
            found.append(read(text))
        except MeasurementError as error:
            found.append(str(error))
    assert found[0] == found[1]


def test_infinite_log_probabilities_are_no_concern_of_ours():
    assert (
        parse('{"choices": [{"text": "a", "logprobs": {"tokens": ["a"], "token_logprobs": [-Infinity]}}]}').num_tokens
        == 1
    )


def _deltas(*events):
    """(seconds, characters, tokens beside the text, running count) each."""
    return [
        (at_s, Delta(num_chars=chars, num_tokens=tokens, total_tokens=total, finished=False))
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
        ([], (), EVENTS),
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
    if len({entry[3] for entry in running}) > 1:
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
    assert found.times_s in ((1.0, 1.0, 1.0, 1.0), (1.0, 1.2, 1.2, 1.2))


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
