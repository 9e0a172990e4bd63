"""Tables of TOML and objects of JSON, read into records that say themselves what they may hold.

A record is a frozen dataclass; its fields are the keys of its table. A field with a default may be left out. The types
say what is allowed: msgspec.Meta holds limits and, as its description, what an error says is wanted; a function behind
it takes what was read and returns what to keep, or raises. `__post_init__` compares fields. A field that is not read
from the key of its name says so by `field(metadata=...)`: key(...), GIVEN, TABLE_NAME, SAME_TABLE.

Worked example: with `set: Counts` in the record at "buckets", {"set": [256, 128]} raises WrongEntryError("buckets.set",
"256 is followed by 128; want a list of one or more whole numbers of at least 1, each larger than the one before").
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import lru_cache
from itertools import pairwise
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from pytest_npubench.errors import NpubenchError, did_you_mean

RecordT = TypeVar("RecordT")
ValuesT = TypeVar("ValuesT", bound=Collection[Any])
GIVEN: Mapping[str, object] = {"key": None}
"""Metadata of a field that whoever reads the table gives, or that nobody reads."""
TABLE_NAME: Mapping[str, object] = {"key": None, "table_name": True}
"""Metadata of a field that is given its table's own name: several such records are read from a table of tables, and not
from a list of them."""
SAME_TABLE: Mapping[str, object] = {"same_table": True}
"""Metadata of a field that is a record of some keys of the table that it stands in."""
_TEXTS = "a list of one or more texts, none empty, none twice"
_INCREASING = "a list of one or more whole numbers of at least 1, each larger than the one before"
Positive = Annotated[float, Meta(gt=0, le=sys.float_info.max, description="a finite number above 0")]
KINDS = {str: "a string", int: "a whole number", float: "a number", bool: "true or false", NoneType: "null"}


class WrongEntryError(ValueError):
    """An entry that is not allowed. `key` is dotted and begins inside the record or value that was being made."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}" if key else problem)
        self.key, self.problem = key, problem


def key(name: str) -> Mapping[str, object]:
    """Metadata of a field that is read from another key: `name`, or `table.name`."""
    return {"key": name}


def at_least(smallest: int) -> Meta:
    return Meta(ge=smallest, description=f"a whole number of at least {smallest}")


def up_to(largest: float) -> Meta:
    return Meta(gt=0, le=largest, description=f"a finite number above 0 and up to {largest:g}")


def text(what: str) -> Meta:
    return Meta(pattern=r"\S", description=what)


def tables(name: str) -> Meta:
    """Returns the annotation of a field that is a list of records."""
    return Meta(min_length=1, description=f"one or more [[{name}]] tables")


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
    """Returns a refinement that accepts only values from `allowed`."""

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
    for key in keys:
        if key not in allowed:
            problem = f"unknown key{did_you_mean(key, allowed).replace('; ', ', ')}; allowed: {listed(allowed)}"
            raise WrongEntryError(dotted(name, key), problem)


def dotted(table: str, name: str) -> str:
    """Returns the key of an entry of a table, or of an item `[0]` of a list."""
    return f"{table}.{name}" if table and name and not name.startswith("[") else table + name


def listed(values: Collection[object]) -> str:
    return ", ".join(map(str, values))


Text = Annotated[str, text("a text that is not empty")]
Texts = Annotated[tuple[Text, ...], Meta(min_length=1, description=_TEXTS), unique]
Count = Annotated[int, at_least(1)]
Counts = Annotated[tuple[Count, ...], Meta(min_length=1, description=_INCREASING), increasing]
Fraction = Annotated[float, up_to(1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordReader:
    """How the values of TOML or JSON become records. A table of JSON has every key, and null is a value; of its lists
    an error names the item, of TOML's, which people write, the key. Where it is open, a table may have other keys than
    the record's, and lack those with a default."""

    is_json: bool
    is_open: bool = False

    def record(
        self,
        of: Callable[..., RecordT],
        entries: object,
        key: str = "",
        *,
        given: Mapping[str, object] = MappingProxyType({}),
        others: Collection[str] = (),
    ) -> RecordT:
        """Returns the record of the table at a place. `given` are values of GIVEN fields by name, `others` keys that
        the table has for somebody else. Raises WrongEntryError."""
        table = self.table(entries, key)
        tables = {"": table}
        for outer, names in _keys(of).items():
            if outer:
                tables[outer] = self.table(table.get(outer, {}), dotted(key, outer))
            if not self.is_open:
                check_keys(dotted(key, outer), tables[outer], names if outer else (*names, *others))
        values = dict(given)
        for field, kind, where in _fields(of):
            outer, _, name = where.rpartition(".")
            if "same_table" in field.metadata:
                entries_here = {name: table[name] for name in _keys(kind)[""] if name in table}
                values[field.name] = self.record(kind, entries_here, key)
            elif name in tables[outer]:
                values[field.name] = self.value(kind, tables[outer][name], dotted(key, where))
            elif (self.is_json and not self.is_open) or (field.default is MISSING and field.default_factory is MISSING):
                missing, want = (where, self._want(kind)) if outer in ("", *table) else (outer, self._table_name)
                raise WrongEntryError(dotted(key, missing), f"missing; want {want}")
        try:
            return of(**values)
        except WrongEntryError as error:
            raise WrongEntryError(dotted(key, error.key), error.problem) from None
        except NpubenchError as error:
            raise WrongEntryError(key, str(error)) from None

    def value(self, kind: Any, value: object, key: str) -> Any:
        """Returns the entry at a place, as its field's type says. Raises WrongEntryError."""
        if _is_leaf(kind):
            try:
                return msgspec.convert(value, kind)
            except msgspec.ValidationError:
                pass  # slower, what follows names the place
        if value is None and NoneType in get_args(kind):
            return None
        alternative = self._alternative(kind, value)
        made = self._made(alternative, kind, value, key)
        try:
            for refine in filter(callable, _parts(alternative)[1]):
                made = refine(made)
        except WrongEntryError as error:
            raise WrongEntryError(dotted(key, error.key), error.problem) from None
        except ValueError as error:
            raise WrongEntryError(key, f"{error}; want {self._want(kind)}") from None
        return made

    def _made(self, alternative: Any, kind: Any, value: object, key: str) -> Any:
        """What a value becomes; `alternative` is the alternative of its field's type `kind` that it is read as."""
        plain, annotations = _parts(alternative)
        item = _item(plain)
        if is_dataclass(plain):
            return self.record(cast(Any, plain), value, key)
        if _is_table(alternative):
            table = self.table(value, key)
            self._check_length(table, annotations, kind, key)
            if (named := _name_field(item)) is not None:
                return tuple(self.record(item, table[each], dotted(key, each), given={named: each}) for each in table)
            of_names, of_values = get_args(item if _is_pair(item) else plain)
            pairs = [
                (self._name(of_names, each, key), self.value(of_values, table[each], dotted(key, each)))
                for each in table
            ]
            return tuple(pairs) if _is_pair(item) else dict(pairs)
        if is_dataclass(item):
            if not isinstance(value, list):
                raise self._wrong(kind, value, key)
            self._check_length(value, annotations, kind, key)
            return tuple(self.value(item, each, f"{key}[{index}]") for index, each in enumerate(value))
        return self._converted(alternative, kind, value, key)

    def _converted(self, to: Any, kind: Any, value: object, key: str) -> Any:
        try:
            return msgspec.convert(value, to)
        except msgspec.ValidationError:
            plain, annotations = _parts(to)
            item = _item(plain)
            if isinstance(value, list) and item is not None and (self.is_json or not annotations):
                for index, each in enumerate(value):  # the first that is wrong
                    self.value(item, each, f"{key}[{index}]")
            raise self._wrong(kind, value, key) from None

    def _name(self, kind: Any, name: str, key: str) -> Any:
        """Returns the name of an entry, which numbers have as text."""
        try:
            return name if kind is str else next(iter(msgspec.convert({name: None}, dict[kind, None], str_keys=True)))
        except msgspec.ValidationError:
            raise WrongEntryError(dotted(key, name), f"want {self._want(kind)} for a name") from None

    def _check_length(self, values: Collection[object], annotations: Collection[Any], kind: Any, key: str) -> None:
        if len(values) < max([each.min_length or 0 for each in annotations if isinstance(each, Meta)], default=0):
            raise self._wrong(kind, values, key)

    def table(self, entries: object, key: str) -> Mapping[str, object]:
        """Raises WrongEntryError where it is none."""
        if not isinstance(entries, Mapping):
            raise self._wrong(Mapping[str, object], entries, key)
        return entries

    def _wrong(self, kind: Any, value: object, key: str) -> WrongEntryError:
        plain = [_parts(each)[0] for each in (get_args(kind) if get_origin(kind) in (Union, UnionType) else [kind])]
        # a number of the kind that is wanted is only too large or too small
        is_sized = type(value) in (int, float) and (type(value) in plain or float in plain)
        shown = kind_of(value)
        if is_sized and "larger" not in shown:
            shown = repr(value) if len(repr(value)) < 20 else f"{value:.3g}"
        instead = f"found {shown}" if self.is_json else f"not {value!r}"
        return WrongEntryError(key, f"want {self._want(kind)}, {instead}")

    @property
    def _table_name(self) -> str:
        return "an object" if self.is_json else "a table"

    def _alternative(self, kind: Any, value: object) -> Any:
        """Returns the alternative of a union that fits a table, or the one for other values."""
        if get_origin(kind) not in (Union, UnionType):
            return kind
        kinds = [each for each in get_args(kind) if each is not NoneType]
        fitting = [each for each in kinds if _is_table(each) is isinstance(value, Mapping)] or kinds
        return fitting[0] if len(fitting) == 1 else Union[tuple(fitting)]  # noqa: UP007 - a union of a tuple

    def _want(self, kind: Any) -> str:
        """What an error says is wanted."""
        if get_origin(kind) in (Union, UnionType):
            return " or ".join(self._want(each) for each in get_args(kind) if self.is_json or each is not NoneType)
        plain, annotations = _parts(kind)
        if get_origin(plain) is Literal:
            return f"one of {listed(get_args(plain))}"
        if described := [each.description for each in annotations if isinstance(each, Meta) and each.description]:
            return described[0]
        return self._table_name if _is_table(plain) else KINDS.get(plain, "a list")


TOML = RecordReader(is_json=False)

JSON = RecordReader(is_json=True)

OPEN_JSON = RecordReader(is_json=True, is_open=True)


def kind_of(value: object) -> str:
    """What a value of JSON is, in words."""
    if isinstance(value, int) and abs(value) > sys.float_info.max:
        return "a whole number larger than any float"
    return "an object" if isinstance(value, Mapping) else KINDS.get(type(value), "a list")


@lru_cache(maxsize=1024)
def _is_leaf(kind: Any) -> bool:
    """Whether msgspec alone reads every value of the type."""
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else [kind]
    return not any(
        _is_table(each) or is_dataclass(_item(_parts(each)[0])) or any(map(callable, _parts(each)[1])) for each in kinds
    )


@lru_cache(maxsize=1024)
def _is_table(kind: Any) -> bool:
    plain, _ = _parts(kind)
    item = _item(plain)
    return is_dataclass(plain) or get_origin(plain) is Mapping or _name_field(item) is not None or _is_pair(item)


def _is_pair(kind: Any) -> bool:
    """Whether a type is a pair of a name and a value; such pairs are read from a table."""
    return get_origin(kind) is tuple and get_args(kind)[0] is str and get_args(kind)[-1] is not Ellipsis


@lru_cache(maxsize=256)
def _fields(of: Any) -> tuple[tuple[Field[Any], Any, str], ...]:
    """Returns the fields that are read for a record, each with its type and its key."""
    kinds = get_type_hints(of, include_extras=True)
    typed = ((field, kinds[field.name], field.metadata.get("key", field.name)) for field in fields(of))
    return tuple((field, kind, where) for field, kind, where in typed if where is not None)


@lru_cache(maxsize=256)
def _keys(of: Any) -> Mapping[str, tuple[str, ...]]:
    """Returns the keys that a record's table may have, under "", and those of each table in it whose keys are fields
    too."""
    keys: dict[str, dict[str, None]] = {"": {}}
    for field, kind, where in _fields(of):
        outer, _, name = where.rpartition(".")
        if outer:
            keys[""][outer] = None
            keys.setdefault(outer, {})
        keys[outer].update(dict.fromkeys(_keys(kind)[""] if "same_table" in field.metadata else [name]))
    return {outer: tuple(names) for outer, names in keys.items()}


def keys_of(of: Any) -> tuple[str, ...]:
    """Returns the keys that are read for a record."""
    return _keys(of)[""]


def _parts(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """Returns a type without its annotations, and these."""
    return (get_args(kind)[0], get_args(kind)[1:]) if get_origin(kind) is Annotated else (kind, ())


@lru_cache(maxsize=1024)
def _item(plain: Any) -> Any:
    """Returns the type of what a list or a table of names holds; None for other types."""
    arguments = get_args(plain)
    return arguments[0] if get_origin(plain) is tuple else arguments[1] if get_origin(plain) is Mapping else None


@lru_cache(maxsize=1024)
def _name_field(kind: Any) -> str | None:
    """Returns the field of a record that is given its table's name."""
    members = fields(kind) if is_dataclass(kind) else ()
    return next((each.name for each in members if each.metadata == TABLE_NAME), None)
