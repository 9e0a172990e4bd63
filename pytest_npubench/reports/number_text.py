"""Numbers as a report prints them: times and percent, with the digits a reader can use.

A time has the unit that suits it, from ns to s. Figures that are compared with each other share one, that of the
largest.

Worked example: time(9.6e-8) == "96 ns", milliseconds(0.0123456) == "12.35", percent(-0.021, signed=True) == "-2.10".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MOST_PERCENT = 100
UNKNOWN = "–"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeUnit:
    name: str
    per_s: float

    def number(self, seconds: float) -> str:
        """Writes the time without its unit."""
        return plain(seconds * self.per_s)


TIME_UNITS = (
    TimeUnit(name="s", per_s=1.0),
    TimeUnit(name="ms", per_s=1e3),
    TimeUnit(name="µs", per_s=1e6),
    TimeUnit(name="ns", per_s=1e9),
)
"""The largest first."""
MILLISECONDS = TIME_UNITS[1]


def time_unit(*seconds: float | None) -> TimeUnit:
    """The one unit for times that are compared: in which the largest of them is 1 or more. Milliseconds of nothing."""
    largest = max((abs(one) for one in seconds if one is not None), default=0.0)
    if not largest:
        return MILLISECONDS
    return next((unit for unit in TIME_UNITS if largest * unit.per_s >= 1), TIME_UNITS[-1])


def time(seconds: float | None, unit: TimeUnit | None = None) -> str:
    """With its unit: the one given, else the one that suits it."""
    if seconds is None:
        return UNKNOWN
    shown = unit or time_unit(seconds)
    return f"{shown.number(seconds)} {shown.name}"


def milliseconds(seconds: float | None) -> str:
    """Four significant digits, whole milliseconds from one second on."""
    if seconds is None:
        return UNKNOWN
    return f"{seconds * 1e3:.4g}" if abs(seconds) < 1 else f"{seconds * 1e3:,.0f}"


def change(fraction: float) -> str:
    """Signed percent with its sign; from twice as much on a factor: "x2.4"."""
    return f"x{two_digits(1 + fraction)}" if fraction > MOST_PERCENT / 100 else f"{fraction * 100:+.2f} %"


def two_digits(value: float) -> str:
    """ "2.4", "24" and "783,296"."""
    return f"{value:.2g}" if value < 99.5 else f"{value:,.0f}"


def percent(fraction: float | None, *, signed: bool = False) -> str:
    if fraction is None:
        return UNKNOWN
    return f"{fraction * 100:+.2f}" if signed else f"{fraction * 100:.2f}"


def seconds(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.2f}"


def count(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.0f}"


def duration(value: float) -> str:
    """Seconds in words: 83.2 is "1 min 23 s"."""
    whole = round(value)
    if whole < 60:
        return f"{value:.1f} s"
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {left} s"


def figure(value: float | None, unit: str, time_in: TimeUnit | None = None) -> str:
    """A metric in its own unit; a time in the one that suits it, or in that of what it is compared with."""
    if value is None:
        return UNKNOWN
    if unit == "s":
        return time(value, time_in)
    return f"{value:.4g} {unit}".strip()


def figures(values: Sequence[float | None], unit: str) -> list[str]:
    """Writes values that are compared, so that times have one unit."""
    return [figure(value, unit, time_unit(*values)) for value in values]


def plain(value: float) -> str:
    """Four significant digits, whole with separators from 1,000 on."""
    return f"{value:.4g}" if abs(value) < 1e3 else f"{value:,.0f}"
