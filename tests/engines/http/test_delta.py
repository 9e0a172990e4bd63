"""Events out of bytes, and deltas out of events."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.engines.http import delta as delta_module
from pytest_npubench.engines.http.arrived import EventStream
from pytest_npubench.engines.http.delta import parse
from pytest_npubench.errors import MeasurementError

EVENT_BYTES = 2**16


@given(
    st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), min_size=1), max_size=6),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.data(),
)
def test_events_are_the_same_however_the_bytes_are_cut(texts, newline, data):
    stream = "".join(f": comment{newline}event: x{newline}data: {text}{newline}{newline}" for text in texts).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    events, found = EventStream(EVENT_BYTES), []
    for first, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += events.feed(stream[first:stop])
    assert found == texts


@pytest.mark.parametrize("newline", ["\n", "\r", "\r\n"])
def test_an_event_is_over_with_its_blank_line_and_waits_for_no_byte_behind_it(newline):
    events = EventStream(EVENT_BYTES)
    assert [events.feed(f"data: {word}{newline}{newline}".encode()) for word in ("a", "b")] == [("a",), ("b",)]


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


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"\xef\xbb\xbfdata: a\n\n", ["a"]),
        (b"data:\n\ndata: a\n\n", ["", "a"]),
        (b"event: ping\ndata: a\n\n", ["a"]),
        (b"event: error\ndata: no blocks\n\ndata: a\n\n", ['{"error": "no blocks"}', "a"]),
        (b'error: {"code": 4}\n\n', ['{"error": {"code": 4}}']),
        (b'{"error": {"code": 4}}\n', ['{"error": {"code": 4}}']),
        (b'{"choices": [{"text": "error"}]}\n', []),
    ],
)
@pytest.mark.parametrize("size", [1, 5, 100])
def test_an_error_in_any_form_is_an_event_and_a_mark_of_the_byte_order_is_none(stream, events, size):
    found = EventStream(EVENT_BYTES)
    assert [event for at in range(0, len(stream), size) for event in found.feed(stream[at : at + size])] == events


@pytest.mark.parametrize("rest", ["data: [DONE]", '{"error": "x"}'])
def test_a_last_line_without_its_end_is_read_where_it_ends_the_answer(rest):
    found = EventStream(EVENT_BYTES)
    assert found.feed(rest.encode()) == ()
    assert found.end() == (rest.removeprefix("data: "),)


def test_bytes_that_are_no_text_are_named():
    with pytest.raises(MeasurementError, match="no UTF-8"):
        EventStream(EVENT_BYTES).feed(b"data: \xff\n\n")


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({"choices": [{"text": "ab"}]}, (2, None, None, "")),
        ({"choices": [{"delta": {"content": "ab"}, "finish_reason": "stop"}]}, (2, None, None, "stop")),
        ({"choices": [{"delta": {"role": "assistant", "content": None}}]}, (0, None, None, "")),
        ({"choices": [{"text": "ab", "logprobs": {"tokens": ["a", "b"]}}]}, (2, 2, None, "")),
        ({"choices": [{"delta": {"content": "a"}, "logprobs": {"content": [{}]}}]}, (1, 1, None, "")),
        ({"choices": [{"text": "a", "logprobs": {"content": []}}]}, (1, None, None, "")),  # none told beside text
        ({"choices": [{"text": "a", "token_ids": [1, 2, 3]}]}, (1, 3, None, "")),
        ({"choices": [], "usage": {"completion_tokens": 7}}, (0, None, 7, "")),
        ({"usage": {"completion_tokens": 7}}, (0, None, 7, "")),
        ({"choices": [{"text": "a"}], "usage": None}, (1, None, None, "")),
        ({"choices": [{"text": "a"}, {"text": "bc", "index": 1}]}, (3, None, None, "")),
        ({"choices": [{"text": "a", "usage": {"completion_tokens": 7}}]}, (1, None, 7, "")),
        ({"choices": [{"text": "a"}], "x_groq": {"usage": {"completion_tokens": 7}}}, (1, None, 7, "")),
        ({"choices": [{"text": "a"}], "x_groq": {"id": "req_1"}}, (1, None, None, "")),
        ({"choices": [{"text": "a"}], "timings": {"predicted_n": 7, "predicted_ms": 9.5}}, (1, None, 7, "")),
        ({"choices": [{"text": "a"}], "usage": {"output_tokens": 7}}, (1, None, 7, "")),
        ({"choices": [{"text": "a", "finish_reason": {"type": "length", "length": 1}}]}, (1, None, None, "length")),
    ],
)
def test_what_an_event_says(event, expected):
    assert parse(json.dumps(event))[:4] == expected


CALL = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": "ab"}}


@pytest.mark.parametrize(
    ("delta", "num_chars", "unknown_key"),
    [
        ({"reasoning_content": "abc"}, 3, ""),
        ({"reasoning": "abc", "reasoning_content": "abc", "content": ""}, 3, ""),  # one text under two names
        ({"reasoning_details": [{"type": "reasoning.text", "text": "abc", "format": "x"}]}, 3, ""),
        ({"content": [{"type": "text", "text": "ab"}, {"type": "thinking", "thinking": [{"text": "c"}]}]}, 3, ""),
        ({"role": "assistant", "content": None, "tool_calls": [CALL]}, 3, ""),
        ({"tool_calls": [{"index": 0, "type": "custom", "custom": {"input": "abc"}}]}, 3, ""),
        ({"tool_calls": []}, 0, ""),
        ({"function_call": {"name": "", "arguments": "ab"}}, 2, ""),
        ({"refusal": "I cannot"}, 8, ""),
        ({"audio": {"id": "audio_1", "transcript": "ab", "expires_at": 3}}, 2, ""),
        ({"audio": {"data": "UklGRg=="}}, 8, ""),
        ({"content": "", "analysis": {"parts": ["ab"]}}, 2, "analysis"),
        ({"role": "assistant", "content": "", "name": "m", "signature": "c2ln"}, 0, ""),
        ({"content": "", "foo": 3, "bar": {"id": "x"}, "baz": None}, 0, ""),
        # what a server sealed: OpenRouter, Gemini, Claude
        ({"reasoning_details": [{"type": "reasoning.encrypted", "data": "QUJD"}]}, 0, ""),
        ({"content": "", "extra_content": {"google": {"thought_signature": "QUJD"}}}, 0, ""),
        ({"thinking_blocks": [{"type": "redacted_thinking", "data": "QUJD"}]}, 0, ""),
        ({"content": [{"type": "reasoning", "encrypted_content": "QUJD", "summary": [{"text": "ab"}]}]}, 2, ""),
    ],
)
def test_whatever_was_generated_is_text(delta, num_chars, unknown_key):
    found = parse(json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}))
    assert (found.num_chars, found.unknown_key) == (num_chars, unknown_key)
    elsewhere = parse(json.dumps({"choices": [{"message": delta, "content_filter_results": {"hate": "safe"}}]}))
    assert elsewhere.num_chars == num_chars


@pytest.mark.parametrize(
    "event",
    [
        *("", " ", "null", "ping", '"ping"', "[]", "{}", "3", '{"type": "ping"}', '{"choices": null}'),
        '{"choices": [], "prompt_filter_results": [{"hate": "safe"}]}',
        '{"id": "x", "timings": {"unit": "ms"}}',
        '{"message": "Ping"}',
    ],
)
def test_an_event_that_brings_nothing_is_passed_over(event):
    found = parse(event)
    assert (found.num_chars, found.total_tokens, found.is_empty) == (0, None, True)


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ("{", "malformed stream"),
        ('["a"]', "want a JSON object"),
        ('{"choices": {}}', "no list of choices"),
        ('{"error": {"message": "out of blocks"}}', "out of blocks"),
        ('{"error": "out of blocks"}', 'ended its answer: "out of blocks'),
        ('{"object": "error", "message": "out of blocks", "choices": [{"text": ""}]}', "ended .*out of blocks"),
        ('{"type": "error", "message": "out of blocks"}', "ended .*out of blocks"),
        ('{"choices": [{"error": {"message": "out of blocks"}}]}', "ended .*out of blocks"),
        ('{"choices": [{"delta": {"content": ""}, "finish_reason": "abort"}]}', 'ended .* "abort"'),
        ('{"choices": [{"finish_reason": {"type": "abort", "message": "out of blocks"}}]}', "ended .*out of blocks"),
        ('{"detail": "out of blocks"}', "no choices, and text under detail: .*out of blocks"),
        ('{"choices": [], "content": "ab"}', "no choices, and text under content"),
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


COUNT = '{{"choices": [{{"text": "a"}}], "usage": {{"completion_tokens": {}, "other": [1e400]}}}}'
DETAILS = (
    '{{"choices": [], "usage": {{"completion_tokens": 9, "completion_tokens_details": {{"reasoning_tokens": {}}}}}}}'
)


@pytest.mark.parametrize(
    ("value", "count"), [("8.0", 8), ("8e0", 8), ("0.0", 0), ("-0.0", 0), ("1e22", 10**22), ("null", None)]
)
def test_a_count_of_another_type_that_is_whole_is_taken(value, count):
    assert parse(COUNT.format(value)).total_tokens == count
    assert parse(DETAILS.format(value)).unstreamed_tokens == (count or 0)


@pytest.mark.parametrize("value", ["8.5", '"8"', "-1", "-1.0", "true", "[8]", '{"a": 8}', "1e400", "-1e400", "NaN"])
def test_a_count_of_another_type_is_named(value):
    for event, name in ((COUNT, "completion_tokens"), (DETAILS, "reasoning_tokens")):
        with pytest.raises(MeasurementError, match=f"malformed stream: {name} is .*; want a whole number"):
            parse(event.format(value))


@pytest.mark.parametrize(
    ("usage", "named"),
    [
        ("null", ""),
        ("{}", ""),
        *((each, "usage is .*; want an object") for each in ("3", "8.0", '"8"', "true", "[8]", "1e400")),
    ],
)
def test_a_usage_that_is_none_is_named(usage, named):
    event = f'{{"choices": [{{"text": "a"}}], "usage": {usage}}}'
    if named:
        with pytest.raises(MeasurementError, match=named):
            parse(event)
    else:
        assert parse(event).total_tokens is None


def test_infinite_log_probabilities_are_no_concern_of_ours():
    event = '{"choices": [{"text": "a", "logprobs": {"tokens": ["a"], "token_logprobs": [-Infinity]}}]}'
    assert parse(event).num_tokens == 1
