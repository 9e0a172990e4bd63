"""Tables of a TOML file, read into records that say themselves what they may hold.

A record is a frozen dataclass; its fields are the keys of its table. A field with a default may be left out. The types
say what is allowed: msgspec.Meta holds limits and, as its description, what an error says is wanted; a function behind
it takes what was read and returns what to keep, or raises. `__post_init__` compares fields. A field that is not read
from the key of its name says so by `field(metadata=...)`: key(...), TABLE_NAME or SAME_TABLE.

Worked example: with `set: Counts` in the record of [buckets], set = [256, 128] raises HardwareFileError
"x.toml: buckets.set: 256 is followed by 128; want a list of one or more whole numbers of at least 1, each larger than
the one before".
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from pytest_npubench.errors import HardwareFileError

RecordT = TypeVar("RecordT")
ValuesT = TypeVar("ValuesT", bound=Collection[Any])

TABLE_NAME: Mapping[str, object] = {"key": None}
"""Metadata of a field that holds its table's own name: a field of several such records is read from a table of tables,
and not from a list of them."""
SAME_TABLE: Mapping[str, object] = {"same_table": True}
"""Metadata of a field that is a record of some keys of the table that it stands in."""


class WrongEntryError(ValueError):
    """An entry that is not allowed. `key` is dotted and begins inside the record or value that was being made."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}")
        self.key, self.problem = key, problem


def key(name: str) -> Mapping[str, object]:
    """Metadata of a field that is read from a key of another name."""
    return {"key": name}


def at_least(smallest: int) -> Meta:
    return Meta(ge=smallest, description=f"a whole number of at least {smallest}")


def up_to(largest: float) -> Meta:
    return Meta(gt=0, le=largest, description=f"a finite number above 0 and up to {largest:g}")


def text(what: str) -> Meta:
    return Meta(pattern=r"\S", description=what)


def one_of(allowed: Collection[str]) -> Meta:
    return Meta(pattern=rf"^({'|'.join(map(re.escape, allowed))})\Z", description=f"one of {listed(allowed)}")


def unique(values: ValuesT) -> ValuesT:
    if len(set(values)) < len(values):
        raise ValueError(f"{next(value for value in values if list(values).count(value) > 1)!r} stands twice")
    return values


def increasing(values: ValuesT) -> ValuesT:
    for left, right in pairwise(values):
        if right <= left:
            raise ValueError(f"{left} is followed by {right}")
    return values


def within(allowed: Collection[object]) -> Callable[[ValuesT], ValuesT]:
    """Values that are each one of those allowed."""

    def check(values: ValuesT) -> ValuesT:
        check_within("", values, allowed)
        return values

    return check


def check_within(name: str, values: Collection[object], allowed: Collection[object]) -> None:
    """Raises WrongEntryError where a list has a value that is not allowed."""
    if unknown := [value for value in values if value not in allowed]:
        raise WrongEntryError(name, f"unknown {listed(unknown)}; allowed: {listed(allowed)}")


def check_keys(name: str, keys: Collection[str], allowed: Collection[str]) -> None:
    """Raises WrongEntryError where a table has a key that is not allowed."""
    for found in keys:
        if found not in allowed:
            problem = f"unknown key{_hint(found, allowed)}; allowed: {listed(allowed)}"
            raise WrongEntryError(dotted(name, found), problem)


def dotted(table: str, name: str) -> str:
    """The key of an entry of a table, or of an item `[0]` of a list."""
    return f"{table}.{name}" if table and name and not name.startswith("[") else table + name


def listed(values: Collection[object]) -> str:
    return ", ".join(map(str, values))


_TEXTS = "a list of one or more texts, none empty, none twice"
_INCREASING = "a list of one or more whole numbers of at least 1, each larger than the one before"

Text = Annotated[str, text("a text that is not empty")]
Texts = Annotated[tuple[Text, ...], Meta(min_length=1, description=_TEXTS), unique]
Count = Annotated[int, at_least(1)]
Counts = Annotated[tuple[Count, ...], Meta(min_length=1, description=_INCREASING), increasing]
Positive = Annotated[float, Meta(gt=0, le=sys.float_info.max, description="a finite number above 0")]
Fraction = Annotated[float, up_to(1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TomlTable:
    """The outermost table of a file, from which the others are read."""

    path: Path
    entries: Mapping[str, object]

    def read(self, name: str, of: type[RecordT]) -> RecordT:
        """The table of that name as a record. Raises HardwareFileError naming file, dotted key and what is allowed."""
        if name not in self.entries:
            raise self.error(name, "missing; want a table")
        return self._read(of, self.entries[name], name)

    def read_itself(self, of: type[RecordT], others: Collection[str] = ()) -> RecordT:
        """This table as a record, but for the keys that it has for `others`. Raises HardwareFileError likewise."""
        return self._read(of, self.entries, "", others)

    def error(self, name: str, problem: str) -> HardwareFileError:
        return HardwareFileError(f"{self.path}: {name}: {problem}")

    def _read(self, of: type[RecordT], entries: object, name: str, others: Collection[str] = ()) -> RecordT:
        try:
            record: RecordT = _record(of, entries, name, others=others)
        except WrongEntryError as error:
            raise self.error(error.key, error.problem) from None
        return record


def _record(of: Any, entries: object, place: str, *, name: str | None = None, others: Collection[str] = ()) -> Any:
    """The record of the table at a place; `name` is the table's own."""
    table = _table(entries, place)
    check_keys(place, table, (*_keys(of), *others))
    values: dict[str, object] = {}
    for field, kind in _fields(of):
        found = field.metadata.get("key", field.name)
        if found is None:
            values[field.name] = name
        elif "same_table" in field.metadata:
            values[field.name] = _record(kind, {its: table[its] for its in _keys(kind) if its in table}, place)
        elif found in table:
            values[field.name] = _value(kind, table[found], dotted(place, found))
        elif field.default is MISSING and field.default_factory is MISSING:
            want = _want(_alternative(kind, None), dotted(place, found))
            raise WrongEntryError(dotted(place, found), f"missing; want {want}" if want else "missing")
    with _at(place):
        return of(**values)


def _value(kind: Any, value: object, place: str) -> Any:
    """The entry at a place, as its field's type says."""
    kind = _alternative(kind, value)
    plain, refinements = _parts(kind)
    inner = _item(plain)
    found: Any
    if is_dataclass(plain):
        found = _record(plain, value, place)
    elif _is_named(inner):
        table = _table(value, place)
        found = tuple(_record(inner, table[name], dotted(place, name), name=name) for name in table)
    elif is_dataclass(inner):
        if not isinstance(value, list) or not value:
            raise WrongEntryError(place, f"want {_want(kind, place)}, not {value!r}")
        found = tuple(_record(inner, entry, f"{place}[{index}]") for index, entry in enumerate(value))
    elif get_origin(inner) is tuple:
        table = _table(value, place)
        found = tuple((name, _value(get_args(inner)[1], table[name], dotted(place, name))) for name in table)
    else:
        try:
            found = msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            want = _want(kind, place)
            raise WrongEntryError(place, f"want {want}, not {value!r}" if want else str(error)) from None
    with _at(place, _want(kind, place)):
        for refine in filter(callable, refinements):
            found = refine(found)
    return found


@contextmanager
def _at(place: str, want: str = "") -> Iterator[None]:
    """What is raised inside is about the entry at a place."""
    try:
        yield
    except WrongEntryError as error:
        raise WrongEntryError(dotted(place, error.key), error.problem) from None
    except ValueError as error:
        raise WrongEntryError(place, f"{error}; want {want}" if want else str(error)) from None


def _table(entries: object, place: str) -> Mapping[str, object]:
    if not isinstance(entries, Mapping):
        raise WrongEntryError(place, f"want a table, not {entries!r}")
    return entries


@lru_cache(maxsize=256)
def _fields(of: Any) -> tuple[tuple[Field[Any], Any], ...]:
    """The fields of a record's class, each with its type."""
    kinds = get_type_hints(of, include_extras=True)
    return tuple((field, kinds[field.name]) for field in fields(of))


def _keys(of: Any) -> Iterator[str]:
    """The keys that a record's table may have."""
    for field, kind in _fields(of):
        if "same_table" in field.metadata:
            yield from _keys(kind)
        elif (found := field.metadata.get("key", field.name)) is not None:
            yield found


def _alternative(kind: Any, value: object) -> Any:
    """Of a union the type for a table, or that for other values. TOML has no null: None means that a key is absent."""
    if get_origin(kind) not in (Union, UnionType):
        return kind
    kinds = [each for each in get_args(kind) if each is not NoneType]
    return next((each for each in kinds if (_want(each, "") == "a table") is isinstance(value, Mapping)), kinds[0])


def _parts(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """A type without its annotations, and these."""
    return (get_args(kind)[0], get_args(kind)[1:]) if get_origin(kind) is Annotated else (kind, ())


def _item(plain: Any) -> Any:
    """The type of a list's items; None where it is no list."""
    return get_args(plain)[0] if get_origin(plain) is tuple else None


def _is_named(kind: Any) -> bool:
    return is_dataclass(kind) and any(field.metadata == TABLE_NAME for field in fields(kind))


def _want(kind: Any, place: str) -> str:
    """What an error says is wanted; empty where the type does not tell."""
    plain, annotations = _parts(kind)
    inner = _item(plain)
    if is_dataclass(plain) or _is_named(inner) or get_origin(inner) is tuple:
        return "a table"
    if is_dataclass(inner):
        return f"one or more [[{place}]] tables"
    return next((each.description or "" for each in annotations if isinstance(each, Meta)), "")


def _hint(name: str, allowed: Collection[str]) -> str:
    from difflib import get_close_matches  # only an error needs it, and every import is paid by every pytest run

    close = get_close_matches(name, allowed, n=1)
    return f", did you mean {close[0]!r}?" if close else ""
