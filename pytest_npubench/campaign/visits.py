"""What a visit of a point leaves: a record, which a round keeps as columns of numbers.

A suite's bench returns a record of a class of its own (a subclass of Visit); the round of a journal holds its fields
under the point's name, "POINT/FIELD", with a value for each visit; `Measured.visits` gives the records back. So a
field's name is written once, in its class.

A field is a number (float or int), a number or None (nothing is kept where a visit lacks it), or a tuple of numbers
(a series; a round visits such a point once). A class with other fields overrides `columns` and `of_columns`.

Worked example: two visits Timing(seconds=0.1), Timing(seconds=0.2) of the point "a" are {"a": (0.1, 0.2)} in a round,
for the one field of Timing has no name of its own there.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, ClassVar, TypeVar, cast, get_args, get_origin, get_type_hints

from pytest_npubench.errors import MeasurementError

DIGITS = 6  # of seconds that are many, microseconds: a journal is read by people and kept for years
Columns = Mapping[str, Sequence[float]]
"""By what stands behind the point's name: a visit's field, or "" for samples under the name itself."""
Round = Mapping[str, tuple[float, ...]]
"""What all visits of a round left, by point and column: "POINT/FIELD", or "POINT"."""
VisitT = TypeVar("VisitT", bound="Visit")


class Visit:
    """Base of what a visit leaves; subclasses are frozen dataclasses of numbers. `signed`: they may be negative."""

    __slots__ = ()
    signed: ClassVar[bool] = False

    def columns(self) -> Columns:
        """Returns the visit's numbers as a round keeps them; fields without a value are left out."""
        columns: dict[str, Sequence[float]] = {}
        for name, how in _fields(type(self)).items():
            value = getattr(self, name)
            if value is not None and value != ():
                columns[name] = tuple(value) if how.is_series else (value,)
        return columns

    @classmethod
    def of_columns(cls: type[VisitT], columns: Columns) -> tuple[VisitT, ...]:
        """Returns the visits that left these columns in one round. Raises MeasurementError on columns of another
        class."""
        kinds = _fields(cls)
        if any(how.is_series for how in kinds.values()):
            return (cls(**{name: _value(cls, name, how, columns) for name, how in kinds.items()}),)
        num_visits = max((len(columns[name]) for name in kinds if name in columns), default=0)
        rows: list[dict[str, Any]] = [{} for _ in range(num_visits)]
        for name, how in kinds.items():
            values = columns.get(name, () if how.is_optional else None)
            if values is None or len(values) not in ({0, num_visits} if how.is_optional else {num_visits}):
                has = "none" if values is None else str(len(values))
                raise MeasurementError(f"{cls.__name__}.{name}: want {num_visits} values in a round, found {has}")
            for index, row in enumerate(rows):
                row[name] = how.number(values[index]) if values else None
        return tuple(cls(**row) for row in rows)


def by_visit(values: Sequence[float], num_visits: int, what: str) -> list[tuple[float, ...]]:
    """Cuts a round's series into one series a visit. Raises MeasurementError where their lengths differ."""
    size, rest = divmod(len(values), max(1, num_visits))
    if rest:
        raise MeasurementError(f"{len(values)} {what} of {num_visits} visits; want as many of each")
    return [tuple(values[index * size : (index + 1) * size]) for index in range(num_visits)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing(Visit):
    """A visit that leaves its seconds alone."""

    seconds: float

    def columns(self) -> Columns:
        return {"": (self.seconds,)}

    @classmethod
    def of_columns(cls, columns: Columns) -> tuple[Timing, ...]:
        return tuple(cls(seconds=seconds) for seconds in columns.get("", ()))


def columns_of(row: Round, name: str) -> Round:
    """Returns the columns of the point of that name in a round, by the part behind the name."""
    prefix = f"{name}/"
    columns = {key.removeprefix(prefix): values for key, values in row.items() if key.startswith(prefix)}
    return {"": row[name], **columns} if name in row else columns


@dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    """How a field is kept: as a series or a number, whether a visit may lack it, whether it is whole."""

    is_series: bool
    is_optional: bool
    is_whole: bool

    def number(self, value: float) -> float:
        return int(value) if self.is_whole else float(value)


def _fields(of: type[Visit]) -> dict[str, _Field]:
    return _cached_fields(cast(Hashable, of))  # mypy takes the class for one of its records, of which some are mutable


@cache
def _cached_fields(of: Any) -> dict[str, _Field]:
    hints = get_type_hints(of)
    return {field.name: _how(hints[field.name]) for field in fields(of)}


def _how(hint: Any) -> _Field:
    is_series = get_origin(hint) is tuple
    inner = [one for one in get_args(hint) if one not in (Ellipsis, type(None))]
    number = inner[0] if inner else hint
    is_optional = type(None) in get_args(hint)
    return _Field(is_series=is_series, is_optional=is_optional, is_whole=number is int)


def _value(of: type[Visit], name: str, how: _Field, columns: Columns) -> Any:
    """Returns a visit's field, of a round that visited once."""
    values = columns.get(name, ())
    if how.is_series:
        return tuple(map(how.number, values))
    if len(values) > 1 or not (values or how.is_optional):
        raise MeasurementError(f"{of.__name__}.{name}: want one value in a round, found {len(values)}")
    return how.number(values[0]) if values else None
