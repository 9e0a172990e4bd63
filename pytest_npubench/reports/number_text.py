"""Numbers as a report prints them: milliseconds and percent, with the digits a reader can use.

Worked example: milliseconds(0.0123456) == "12.35", percent(-0.021, signed=True) == "-2.10".
"""

from __future__ import annotations

UNKNOWN = "–"


def milliseconds(seconds: float | None) -> str:
    """Four significant digits, whole milliseconds from one second on."""
    if seconds is None:
        return UNKNOWN
    return f"{seconds * 1e3:.4g}" if abs(seconds) < 1 else f"{seconds * 1e3:,.0f}"


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


def figure(value: float | None, unit: str) -> str:
    """A metric in its own unit; seconds are printed in milliseconds."""
    if value is None:
        return UNKNOWN
    if unit == "s":
        return f"{milliseconds(value)} ms"
    return f"{value:.4g} {unit}".strip()


def plain(value: float) -> str:
    """Four significant digits, whole with separators from 1,000 on."""
    return f"{value:.4g}" if abs(value) < 1e3 else f"{value:,.0f}"
