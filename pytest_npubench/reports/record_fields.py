"""Reading the fields of journal records for display: what is absent or of an unexpected type is unknown, never a crash.

A journal promises few fields (docs/formats.md), and other writers or later versions may leave out or add the rest.

Worked example: number({"error": 0.02}, "error") == 0.02, and number({"error": "?"}, "error") is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Record = Mapping[str, Any]
LARGEST = 1e300  # of numbers up to this, sums and milliseconds are finite too


def as_number(value: object) -> float | None:
    """A number that can be reckoned with; None for anything else, truth values included."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) <= LARGEST else None  # a NaN compares false


def number(record: Record, name: str) -> float | None:
    return as_number(record.get(name))


def numbers(record: Record, name: str) -> tuple[float, ...]:
    """The finite numbers of a list, in its order; empty where there is no list."""
    return finite(record.get(name))


def finite(values: object) -> tuple[float, ...]:
    items = values if isinstance(values, (list, tuple)) else ()
    return tuple(item for item in map(as_number, items) if item is not None)


def text(record: Record, name: str) -> str:
    """The field as text, empty where it is absent or null."""
    value = record.get(name)
    return "" if value is None else str(value)


def table(record: Record, name: str) -> Record:
    """The field where it is an object, else an empty one."""
    value = record.get(name)
    return value if isinstance(value, Mapping) else {}


def suite_of(record: Record) -> str:
    """The suite of a case, the head of its key suite/kind/id; empty where the key has another form."""
    parts = text(record, "case").split("/", 2)
    return parts[0] if len(parts) == 3 else ""


def kind_of(record: Record) -> str:
    """The kind of a case, the middle of its key suite/kind/id; empty where the key has another form."""
    parts = text(record, "case").split("/", 2)
    return parts[1] if len(parts) == 3 else ""


def what_of(record: Record) -> str:
    """What a case timed; of one that timed nothing its kind, which its id does not tell."""
    return text(record, "what") or kind_of(record).replace("_", " ")
