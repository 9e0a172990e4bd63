"""The JSON layer: what goes in comes out, and what must not go in is named."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_npubench.store.json_text import JsonError, canonical, decode, encode, layout, plain, take

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


@settings(max_examples=100)
@given(VALUES)
def test_line_round_trip(value):
    line = encode(plain(value))
    assert line.isascii()
    assert b"\n" not in line
    assert decode(line) == value == json.loads(line)


@settings(max_examples=100)
@given(VALUES)
def test_layout_is_the_same_value_with_sorted_names(value):
    text = layout(value)
    assert json.loads(text) == value
    assert canonical(json.loads(text)) == canonical(value)
    assert all(list(item) == sorted(item) for item in _objects(json.loads(text)))


def _objects(value):
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _objects(item)


def test_layout_keeps_a_sample_list_on_one_line():
    assert layout({"b": [[1.5, 2.0], []], "a": {}}) == '{\n "a": {},\n "b": [\n  [1.5, 2.0],\n  []\n ]\n}'


def test_tuples_become_lists_and_float_subclasses_floats():
    numpy = pytest.importorskip("numpy")
    assert plain({"a": (1, numpy.float64(0.5))}) == {"a": [1, 0.5]}
    assert type(plain(numpy.float64(0.5))) is float


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"points": {"b128": [1.0, math.nan]}}, r"points\.b128\[1\]: nan is not a finite number"),
        ({"points": -math.inf}, r"points: -inf is not a finite number"),
        (math.nan, "value: nan"),
        ({"settings": {"path": object()}}, r"settings\.path: a object has no JSON form"),
        ({"buckets": {128: 1}}, r"buckets: the name 128 is not a string"),
        ({"blob": b"x"}, "blob: a bytes has no JSON form"),
    ],
)
def test_what_has_no_json_form_is_named(value, message):
    with pytest.raises(JsonError, match=f"^{message}"):
        encode(plain(value))


@pytest.mark.parametrize(
    ("raw", "message", "place"),
    [
        (b'{"a": 1,}', "", (1, 9)),
        (b'{"a": 1}\n{', "Extra data", (2, 1)),
        (b"", "Expecting value", (1, 1)),
        (b'"ab\xff"', "not UTF-8 text", (1, 4)),
        (b'["a",\n\xff]', "not UTF-8 text", (2, 1)),
        (b'{"a": NaN}', "NaN is not a finite number", (1, 7)),
        (b'{"NaN": 1,\n "b": [1, "\\"NaN", NaN]}', "NaN is not a finite number", (2, 20)),
        (b'{"a": 1e999}', "1e999 is not a finite number", (1, 7)),
        (b"[1, -1e999x]", "-1e999 is not a finite number", (1, 5)),
        (b"[-Infinity]", "-Infinity is not a finite number", (1, 2)),
        (b'{"a": 1, "b": 2, "a": 3}', "the name 'a' stands twice", (None, None)),
        (b"[" * 100_000, "nested deeper than 32 levels", (None, None)),
        (b"1" * 5_000, "", (None, None)),
    ],
)
def test_text_that_is_not_our_json(raw, message, place):
    with pytest.raises(JsonError, match=f"^{message}") as caught:
        decode(raw)
    assert (caught.value.line, caught.value.column) == place


def test_take_names_the_place_and_what_is_allowed():
    assert take({"a": 1}, "a", (int, float)) == 1
    with pytest.raises(JsonError, match=r"^x\.a: missing$"):
        take({}, "a", (int,), "x")
    with pytest.raises(JsonError, match=r"^a: want a whole number or a number, found true or false$"):
        take({"a": True}, "a", (int, float))
    with pytest.raises(JsonError, match=r"^x: want an object, found a list$"):
        take([], "a", (int,), "x")
