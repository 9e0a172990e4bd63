"""Records read from tables: where each field comes from, unions, and what an error names in TOML and in JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from itertools import pairwise
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.core.record_reader import (
    GIVEN,
    JSON,
    OPEN_JSON,
    SAME_TABLE,
    TABLE_NAME,
    TOML,
    Count,
    Counts,
    Fraction,
    Positive,
    RecordReader,
    Text,
    Texts,
    WrongEntryError,
    increasing,
    key,
)


@dataclass(frozen=True, kw_only=True)
class Size:
    name: str = field(metadata=TABLE_NAME)
    rounds: Count


@dataclass(frozen=True, kw_only=True)
class Asking:
    api: str = "chat"


@dataclass(frozen=True, kw_only=True)
class Everything:
    file: str = field(metadata=GIVEN)
    match: str = field(metadata=key("probe.match"))
    devices: Count = field(default=1, metadata=key("probe.devices"))
    asking: Asking = field(metadata=SAME_TABLE)
    sizes: tuple[Size, ...] = field(metadata=key("profile"))
    capacity: Count | Mapping[str, Count]
    facts: tuple[tuple[str, str], ...] = ()
    by_bucket: Mapping[int, float] = field(default_factory=dict)
    note: str | None = None


TABLE: dict[str, Any] = {
    "probe": {"match": "x"},
    "api": "completions",
    "profile": {"quick": {"rounds": 2}, "full": {"rounds": 3}},
    "capacity": {"one": 5},
    "facts": {"b": "1", "a": "2"},
    "by_bucket": {"128": 1},
}


def read(reader: RecordReader, **changes: Any) -> Everything:
    table = {name: value for name, value in {**TABLE, **changes}.items() if value is not ...}
    return reader.record(Everything, table, "top", given={"file": "f"})


def test_each_field_is_read_from_its_place() -> None:
    assert read(TOML) == Everything(
        file="f",
        match="x",
        devices=1,
        asking=Asking(api="completions"),
        sizes=(Size(name="quick", rounds=2), Size(name="full", rounds=3)),
        capacity={"one": 5},
        facts=(("b", "1"), ("a", "2")),
        by_bucket={128: 1.0},
    )
    assert read(TOML, capacity=7).capacity == 7


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"file": "g"}, "top.file: unknown key"),
        ({"probe": ...}, "top.probe: missing; want a table"),
        ({"probe": {}}, "top.probe.match: missing; want a string"),
        ({"probe": {"match": "x", "device": 1}}, "top.probe.device: unknown key, did you mean 'devices'?"),
        ({"api": 3}, "top.api: want a string, not 3"),
        ({"profile": {"quick": {"rounds": 0}}}, "top.profile.quick.rounds: want a whole number of at least 1, not 0"),
        ({"profile": {"quick": {"rounds": 1, "name": "x"}}}, "top.profile.quick.name: unknown key"),
        ({"capacity": {"one": True}}, "top.capacity.one: want a whole number of at least 1, not True"),
        ({"capacity": "x"}, "top.capacity: want a whole number of at least 1 or a table, not 'x'"),
        ({"by_bucket": {"x": 1}}, "top.by_bucket.x: want a whole number for a name"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(WrongEntryError) as raised:
        read(TOML, **changes)
    assert str(raised.value).startswith(message)


def test_an_object_of_json_has_every_key_and_an_open_one_may_have_others() -> None:
    with pytest.raises(WrongEntryError, match=r"top\.probe\.devices: missing; want a whole number of at least 1"):
        read(JSON)
    assert read(OPEN_JSON, other=1) == read(TOML)
    assert read(OPEN_JSON, note=None).note is None
    with pytest.raises(WrongEntryError, match=r"top\.note: want a string or null, found a whole number"):
        read(OPEN_JSON, note=1)


@given(st.lists(st.integers(-1, 4) | st.booleans() | st.text(max_size=1), max_size=4))
def test_increasing_counts_are_taken_alone(values: list[Any]) -> None:
    whole = all(type(value) is int for value in values)
    if values and whole and values[0] > 0 and all(a < b for a, b in pairwise(values)):
        assert TOML.value(Counts, values, "x") == tuple(values)
    else:
        with pytest.raises(WrongEntryError, match=r"^x: "):
            TOML.value(Counts, values, "x")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *((Positive, value) for value in (10**400, math.nan, math.inf, 0, -1, True, "1", [1])),
        *((Fraction, value) for value in (1.5, 0)),
        *((Count, value) for value in (0.5, True, 0)),
        *((Text, value) for value in (" ", date(2026, 1, 1), 1)),
        *((Texts, value) for value in ([], ["a", "a"], [1, "a"], "a")),
        *((Counts, value) for value in ([True, 2], 3)),
    ],
)
def test_what_is_no_such_value_is_refused(kind: Any, value: object) -> None:
    with pytest.raises(WrongEntryError, match=r"^x: .*want a"):
        TOML.value(kind, value, "x")


def test_json_names_the_item_of_a_list_and_toml_the_key() -> None:
    kind = Annotated[tuple[float, ...], increasing]
    with pytest.raises(WrongEntryError, match=r"^x\[1\]: want a number, found a string$"):
        JSON.value(kind, [1, "b"], "x")
    with pytest.raises(WrongEntryError, match=r"^x: want a list, not \[1, 'b'\]$"):
        TOML.value(kind, [1, "b"], "x")
