"""Cells and rows that the tables of the partition and of the offload suite share.

Worked example: ratio(0.9312, (0.9, 0.97)) == "0.931 (95 % 0.9 to 0.97)", and ratio(0.9312) == "0.931" where no interval
is known. What a record lacks is "–".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pytest_npubench.reports import number_text
from pytest_npubench.reports.record_fields import Record, as_number, kind_of, number, table, text

NO_BREAK = "\u00a0"  # a cell breaks before its interval, not inside


def of_kind(records: Iterable[Record], kind: str) -> list[Record]:
    """The cases of that kind that left a detail; an invalid one has none."""
    return [record for record in records if kind_of(record) == kind and table(record, "detail")]


def operator_of(record: Record) -> str:
    return text(table(record, "axes"), "operator") or text(record, "id") or "an operator"


def device_name(record: Record) -> str:
    """The device, where it is not the first of its family."""
    device = text(record, "device")
    return device if device and not device.endswith(":0") else ""


def entries(record: Record, name: str) -> list[Record]:
    """The objects of a list, in its order."""
    values = record.get(name)
    return [item for item in values if isinstance(item, Mapping)] if isinstance(values, (list, tuple)) else []


def scaled(record: Record, name: str, factor: float) -> float | None:
    """A number of the record in another unit."""
    value = number(record, name)
    return None if value is None else as_number(value * factor)


def plain(value: float | None) -> str:
    return number_text.UNKNOWN if value is None else number_text.plain(value)


def microseconds(record: Record, name: str) -> str:
    return plain(scaled(record, name, 1e6))


def milliseconds(record: Record, name: str) -> str:
    return number_text.milliseconds(number(record, name))


def megabytes(record: Record, name: str) -> str:
    return plain(scaled(record, name, 1e-6))


def percent(record: Record, name: str, *, signed: bool = False) -> str:
    """Without its sign, which the column's head has."""
    return number_text.percent(number(record, name), signed=signed)


def ratio(value: float | None, ends: Sequence[float] = ()) -> str:
    """With its 95 % interval where both ends are known."""
    if value is None:
        return number_text.UNKNOWN
    interval = f" (95{NO_BREAK}%{NO_BREAK}{ends[0]:.3g}{NO_BREAK}to{NO_BREAK}{ends[1]:.3g})" if len(ends) == 2 else ""
    return f"{value:.3g}{interval}"


def without_unknown_columns(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    """Header and rows without the columns, but for the first, that no row has anything in."""
    kept = [
        place for place in range(len(header)) if place == 0 or any(row[place] != number_text.UNKNOWN for row in rows)
    ]
    return tuple(tuple(row[place] for place in kept) for row in (header, *rows))
