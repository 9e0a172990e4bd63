"""A table of a TOML file that knows where it is: a reader checks one kind of value, or raises naming file and key."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from pytest_npubench.errors import HardwareFileError


class TomlTable:
    """A TOML table that knows its file and dotted key. Each reader checks one kind of value or raises naming both."""

    def __init__(self, path: Path, key: str, entries: object, allowed: Sequence[str]) -> None:
        self.path, self.key = path, key
        if not isinstance(entries, dict):
            raise HardwareFileError(f"{path}: {key}: want a table, not {entries!r}")
        self.entries: dict[str, object] = entries
        for name in entries:
            if name not in allowed:
                raise self.error(name, f"unknown key{_hint(name, allowed)}; allowed: {listed(allowed)}")

    def __contains__(self, name: str) -> bool:
        return name in self.entries

    def dotted(self, name: str) -> str:
        return f"{self.key}.{name}" if self.key else name

    def error(self, name: str, problem: str) -> HardwareFileError:
        return HardwareFileError(f"{self.path}: {self.dotted(name)}: {problem}")

    def wrong(self, name: str, want: str) -> HardwareFileError:
        return self.error(name, f"want {want}, not {self.entries[name]!r}")

    def value(self, name: str, want: str, default: object = None) -> object:
        """The entry, else the default. Raises where there is neither."""
        if name not in self.entries and default is None:
            raise self.error(name, f"missing; want {want}")
        return self.entries.get(name, default)

    def table(self, name: str, allowed: Sequence[str]) -> TomlTable:
        return TomlTable(self.path, self.dotted(name), self.value(name, "a table"), allowed)

    def tables(self, name: str, allowed: Sequence[str]) -> list[TomlTable]:
        """An array of tables; none where the key is missing."""
        if name not in self.entries:
            return []
        entries = self.entries[name]
        if not isinstance(entries, list) or not entries:
            raise self.wrong(name, f"one or more [[{self.dotted(name)}]] tables")
        dotted = self.dotted(name)
        return [TomlTable(self.path, f"{dotted}[{index}]", entry, allowed) for index, entry in enumerate(entries)]

    def text(self, name: str, want: str = "a text that is not empty") -> str:
        value = self.value(name, want)
        if not isinstance(value, str) or not value.strip():
            raise self.wrong(name, want)
        return value

    def choice(self, name: str, allowed: Sequence[str]) -> str:
        want = f"one of {listed(allowed)}"
        value = self.text(name, want)
        if value not in allowed:
            raise self.wrong(name, want)
        return value

    def number(self, name: str, at_most: float = sys.float_info.max, default: float | None = None) -> float:
        want = f"a finite number above 0{f' and up to {at_most:g}' if at_most < sys.float_info.max else ''}"
        value = self.value(name, want, default)
        # bool is an int to Python; a NaN is in no range
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= at_most:
            raise self.wrong(name, want)
        return float(value)

    def integer(self, name: str, at_least: int = 1, default: int | None = None) -> int:
        want = f"a whole number of at least {at_least}"
        value = self.value(name, want, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
            raise self.wrong(name, want)
        return value

    def strings(self, name: str, within: Sequence[str] = ()) -> tuple[str, ...]:
        """A list of texts, each one of `within` where that is given."""
        want = "a list of one or more texts, none empty, none twice"
        values = self.value(name, want)
        if not isinstance(values, list) or not values:
            raise self.wrong(name, want)
        if any(not isinstance(value, str) or not value.strip() for value in values) or len(set(values)) < len(values):
            raise self.wrong(name, want)
        self.check_within(name, values, within)
        return tuple(values)

    def increasing(self, name: str, within: Sequence[int] = ()) -> tuple[int, ...]:
        """A list of strictly increasing whole numbers, each one of `within` where that is given."""
        want = "a list of one or more whole numbers of at least 1, each larger than the one before"
        values = self.value(name, want)
        if not isinstance(values, list) or not values:
            raise self.wrong(name, want)
        if any(isinstance(value, bool) or not isinstance(value, int) or value < 1 for value in values):
            raise self.wrong(name, want)
        for left, right in pairwise(values):
            if right <= left:
                raise self.error(name, f"{left} is followed by {right}; want {want}")
        self.check_within(name, values, within)
        return tuple(values)

    def shares(self, name: str) -> tuple[float, ...]:
        """A list of strictly increasing numbers above 0 and below 1."""
        want = "a list of one or more numbers above 0 and below 1, each larger than the one before"
        values = self.value(name, want)
        if not isinstance(values, list) or not values or any(not isinstance(value, float) for value in values):
            raise self.wrong(name, want)
        if not all(left < right for left, right in pairwise([0.0, *values, 1.0])):
            raise self.wrong(name, want)
        return tuple(values)

    def check_within(self, name: str, values: Sequence[object], within: Sequence[object]) -> None:
        if within and (unknown := [value for value in values if value not in within]):
            raise self.error(name, f"unknown {listed(unknown)}; allowed: {listed(within)}")


def _hint(name: str, allowed: Sequence[str]) -> str:
    from difflib import get_close_matches  # only an error needs it, and every import is paid by every pytest run

    close = get_close_matches(name, allowed, n=1)
    return f", did you mean {close[0]!r}?" if close else ""


def listed(values: Sequence[object]) -> str:
    return ", ".join(map(str, values))
