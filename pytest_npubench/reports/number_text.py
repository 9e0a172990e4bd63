"""Numbers as a report prints them: times, bytes, energies and percent, with the digits a reader can use.

A figure has the unit that suits it: a time from ns to s, bytes from B to TB (powers of 1,000). Figures that are
compared with each other share one, that of the largest.

Worked example: time(9.6e-8) == "96 ns", figure(1.2e6, "B") == "1.2 MB", milliseconds(0.0123456) == "12.35",
percent(-0.021, signed=True) == "-2.10".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MOST_PERCENT = 100
UNKNOWN = "–"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """A unit that figures are printed in, `factor` of which are one base unit."""

    name: str
    factor: float

    def number(self, value: float) -> str:
        """Writes a figure in the base unit as one in this unit, without its name."""
        return plain(value * self.factor)


PREFIXES = {"T": 1e-12, "G": 1e-9, "M": 1e-6, "k": 1e-3, "": 1.0, "m": 1e3, "µ": 1e6, "n": 1e9}
SCALES = {
    unit: tuple(Scale(name=prefix + unit, factor=PREFIXES[prefix]) for prefix in prefixes)
    for unit, prefixes in {"s": ("", "m", "µ", "n"), "B": ("T", "G", "M", "k", ""), "J": ("k", "", "m", "µ")}.items()
}
"""The scales of each base unit, the largest first."""
MILLISECONDS = SCALES["s"][1]


def scale(unit: str, *values: float | None) -> Scale:
    """Returns the one scale for figures that are compared: in which the largest of them is 1 or more. Of a unit with
    one scale it is that one, of no times milliseconds."""
    base, slash, per = unit.partition("/")
    of_bytes = SCALES["B"] if base in ("B", "bytes") else (Scale(name=unit, factor=1.0),)
    scales = SCALES.get(unit, of_bytes)
    largest = max((abs(value) for value in values if value is not None), default=0.0)
    if largest:
        suited = next((choice for choice in scales if largest * choice.factor >= 1), scales[-1])
    else:
        suited = MILLISECONDS if unit == "s" else next(choice for choice in scales if choice.factor == 1)
    return Scale(name=suited.name + slash + per, factor=suited.factor) if scales is SCALES["B"] else suited


def time(seconds: float | None, shown_in: Scale | None = None) -> str:
    """With its unit: the one given, else the one that suits it."""
    return figure(seconds, "s", shown_in)


def milliseconds(seconds: float | None) -> str:
    """Four significant digits, whole milliseconds from one second on."""
    if seconds is None:
        return UNKNOWN
    return f"{seconds * 1e3:.4g}" if abs(seconds) < 1 else f"{seconds * 1e3:,.0f}"


def change(fraction: float, digits: int = 2) -> str:
    """Signed percent with so many digits behind the point; from twice as much on a factor: "x2.4"."""
    if fraction > MOST_PERCENT / 100:
        return f"x{two_digits(1 + fraction)}"
    return f"{round(fraction * 100, digits) + 0.0:+.{digits}f} %"  # adding 0 turns -0.0 into 0.0


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


def figure(value: float | None, unit: str, shown_in: Scale | None = None) -> str:
    """Writes a figure of four digits in the scale that suits it, or in that of what it is compared with, and a ratio as
    "x1.23"."""
    if value is None:
        return UNKNOWN
    if unit == "ratio":
        return f"x{plain(value)}"
    shown_in = shown_in or scale(unit, value)
    return f"{shown_in.number(value)} {shown_in.name}".strip()


def figures(values: Sequence[float | None], unit: str) -> list[str]:
    """Writes values that are compared in one scale."""
    return [figure(value, unit, scale(unit, *values)) for value in values]


def plain(value: float) -> str:
    """Four significant digits, whole with separators from 1,000 on."""
    return f"{value:.4g}" if abs(value) < 1e3 else f"{value:,.0f}"
