"""What a chart is made of: its series, axes, guides and bands, as typed data. reports/svg.py draws them.

Series have colours of middle lightness, which read on a light and on a dark ground; they differ by symbol or pattern as
well, so that nothing hangs on colour alone.

Worked example: round_ticks(30, 600) == [50.0, 100.0, 200.0, 500.0].
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

BLUE, ORANGE, GREEN, PURPLE, PINK = "#3b82f6", "#d97706", "#059669", "#8b5cf6", "#db2777"
RED, GREY = "#dc2626", "#808a96"
SERIES = (BLUE, ORANGE, GREEN, PURPLE)
COLORS = (*SERIES, PINK, RED, GREY)
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x")
MAX_LABEL = 60
LARGEST_SHOWN = 1e30
FAR = 3.0
"""From this factor on, what changed is drawn on a logarithmic axis."""

Ends = tuple[float, float] | None
Place = float | str | None
"""A number, the name of a category, or a gap."""


class Shape(Enum):
    """How the values of a series are drawn."""

    LINE = "line"
    STAIRS = "stairs"
    """Flat until the next value, then up to it: what has happened by a time."""
    TREADS = "treads"
    """Each value holds from the place before it up to its own, with no riser between: what a bucket costs."""
    AREA = "area"
    """A line and what lies below it."""
    MARKS = "marks"
    BARS = "bars"
    SPAN = "span"
    """Bars from -x to x behind the others."""
    BOXES = "boxes"
    """From one end of `x_ends` to the other, within the row of their name, of which `y_ends` is the part, 0 its top."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnSeries:
    """Values over their places; None is a gap. `x_ends` and `y_ends` are intervals, a pair for each value or None.
    `hover` is what a mark says of itself, a format of x and y. `colors` are those of single marks, where they differ;
    `name` names the legend's entry, and `title` is the name that a mark says where that entry stands for more. `says`
    is what each mark says where no format of x and y does, `labels` what stands in boxes that are wide enough."""

    name: str
    shape: Shape
    x: Sequence[Place]
    y: Sequence[Place]
    hover: str = ""
    color: str = BLUE
    colors: Sequence[str] = ()
    symbol: str = ""
    size: float = 8
    dash: str = ""
    width: float = 1.5
    x_ends: Sequence[Ends] = ()
    y_ends: Sequence[Ends] = ()
    opacity: float = 1
    pattern: str = ""
    in_legend: bool = True
    title: str = ""
    says: Sequence[str] = ()
    labels: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """`names` are the categories of an axis without numbers. `ticks` stand where they are given and nowhere else;
    `span` is what the axis covers, from the lowest to the highest value where it is None."""

    title: str
    log: bool = False
    ticks: tuple[float, ...] = ()
    names: tuple[str, ...] = ()
    span: tuple[float, float] | None = None
    from_zero: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnFigure:
    """`verticals` and `horizontals` are dotted lines over the whole chart. `band` is the allowed range of the
    horizontal axis; `wedge` that around the diagonal, as a relative error."""

    series: tuple[DrawnSeries, ...]
    x: Axis
    y: Axis
    verticals: tuple[float, ...] = ()
    horizontals: tuple[float, ...] = ()
    band: tuple[float, float] | None = None
    diagonal: bool = False
    wedge: float | None = None
    legend: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One field of a grid. `text` is its number or word, `aside` what stands beside its bar; `sentence` says all of
    it. `shade` from 0 to 1 is how dark it is; `share` from 0 to 1 is the part of its bar that belongs to the
    first of two; `steps` puts a line above it."""

    text: str
    sentence: str
    aside: str = ""
    shade: float | None = None
    share: float | None = None
    steps: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CellGrid:
    """Cells by row and column, None where nothing was measured. A column's head has a name and a line below it.
    `parts` name the two that a bar is shared by, `shades` the lightest and the darkest cell; empty where no cell has
    such."""

    rows_title: str
    rows: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    cells: tuple[tuple[Cell | None, ...], ...]
    shades: tuple[str, str] | None = None
    parts: tuple[str, str] | None = None


def label(text: str) -> str:
    """Text that fits beside an axis; of a long one, a path say, the end."""
    return text if len(text) <= MAX_LABEL else f"…{text[1 - MAX_LABEL :]}"


def axis(title: str, *, from_zero: bool = False, span: tuple[float, float] | None = None) -> Axis:
    return Axis(title=title, from_zero=from_zero, span=span)


def log_axis(title: str, ticks: Sequence[float] = (), span: tuple[float, float] | None = None) -> Axis:
    """A logarithmic axis with a tick at each of these and none between them; at round numbers where none is given."""
    return Axis(title=title, log=True, ticks=tuple(ticks), span=span)


def level_axis(title: str, values: Iterable[float]) -> Axis:
    """The axis of one quantity before and after it changed: logarithmic where it did beyond x3."""
    return log_axis(title) if is_far(values) else axis(title)


def is_far(values: Iterable[float]) -> bool:
    """Whether the largest is more than 3 times the smallest, which is above 0."""
    numbers = list(values)
    return bool(numbers) and 0 < FAR * min(numbers) < max(numbers)


def category_axis(names: Iterable[str]) -> Axis:
    """Names from top to bottom, as in a table, or from left to right."""
    return Axis(title="", names=tuple(dict.fromkeys(map(label, names))))


def milliseconds(values: Iterable[float | None]) -> list[float | None]:
    return [None if value is None else value * 1e3 for value in values]


def percents(values: Iterable[float | None]) -> list[float | None]:
    return [None if value is None else value * 100 for value in values]


def round_ticks(low: float, high: float) -> list[float]:
    """The numbers 1, 2 and 5 times a power of ten from low to high, both above 0."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [digit * 10.0**decade for decade in decades for digit in (1, 2, 5)]
    return [tick for tick in ticks if low <= tick <= high]


def has_place(value: float, log: bool = False) -> bool:
    """Whether an axis can show it: nothing measured is beyond 1e30, and nothing above 0 below 1e-30."""
    return -LARGEST_SHOWN <= value <= LARGEST_SHOWN and not (log and value < 1 / LARGEST_SHOWN)


def spread_axis(title: str, values: Sequence[float]) -> Axis:
    """The axis is logarithmic and a little wider than the values that it can show."""
    shown = [value for value in values if has_place(value, log=True)] or [1.0]
    low, high = min(shown) / 1.6, max(shown) * 1.6
    return log_axis(title, round_ticks(low, high), (low, high))
