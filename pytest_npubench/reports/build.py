"""What suites build their sections of: tables, charts, and the lines, stairs, marks and bars that charts are drawn of.

Values are numbers in the unit of their axis; None leaves a gap. `index` is a series' number in its chart: colour and
symbol follow from it unless they are given, so that nothing hangs on colour alone. `ends` are intervals, a pair for
each value or None; `hover` is what a mark says, "{x} tokens: {y:.4g} ms".

Worked example: table("Times", (("arm", lambda row: row.arm), ("ms", lambda row: milliseconds(row.total_s))), rows).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pytest_npubench.reports import number_text
from pytest_npubench.reports.page import Chart, Table
from pytest_npubench.reports.plot_parts import (
    COLORS,
    SYMBOLS,
    Axis,
    DrawnFigure,
    DrawnSeries,
    Ends,
    Place,
    Shape,
    label,
)
from pytest_npubench.verdict.case_record import CaseRecord

RowT = TypeVar("RowT")
PartT = TypeVar("PartT", Chart, Table)
Columns = Sequence[tuple[str, Callable[[RowT], str]]]
"""The head of each column, and the text of its cell in a row."""
Values = Sequence[float | None]

NO_BREAK = "\u00a0"  # a cell breaks before its interval, not inside


def plain(value: float | None) -> str:
    """Four significant digits; a dash where it is unknown."""
    return number_text.UNKNOWN if value is None else number_text.plain(value)


def table(
    caption: str,
    columns: Columns[RowT],
    rows: Iterable[RowT],
    *,
    note: str = "",
    without_unknown: bool = False,
) -> Table:
    """A row of cells for each of `rows`. `without_unknown`: columns but the first in which no row has anything are left
    out."""
    cells = [tuple(cell(row) for _, cell in columns) for row in rows]
    kept = [
        place
        for place in range(len(columns))
        if place == 0 or not without_unknown or any(row[place] != number_text.UNKNOWN for row in cells)
    ]
    return Table(
        caption=caption,
        header=tuple(columns[place][0] for place in kept),
        rows=tuple(tuple(row[place] for place in kept) for row in cells),
        note=note,
    )


def series_table(caption: str, head: str, rows: Sequence[str], series: Mapping[str, Sequence[str]]) -> Table:
    """A column of cells for each series, beside what the rows are called."""
    cells = ((name, *(column[place] for column in series.values())) for place, name in enumerate(rows))
    return Table(caption=caption, header=(head, *series), rows=tuple(cells))


def of_kind(kind: str, parts: Iterable[PartT | None]) -> list[PartT]:
    """Keeps the charts or tables that there are: cases of that kind lead there."""
    return [replace(part, shows=(kind,)) for part in parts if part is not None]


def of_each(make: Callable[[CaseRecord[Any]], PartT | None], cases: Iterable[CaseRecord[Any]]) -> list[PartT]:
    """The chart or table of each case that has one: the case leads there."""
    return [replace(part, shows=(case.key,)) for case in cases if (part := make(case)) is not None]


def chart(
    title: str,
    summary: str,
    notes: Iterable[str],
    series: Iterable[DrawnSeries],
    axes: tuple[Axis, Axis],
    data: Table,
    *,
    verticals: Iterable[float] = (),
    horizontals: Iterable[float] = (),
    band: tuple[float, float] | None = None,
    diagonal: bool = False,
    wedge: float | None = None,
    legend: bool = True,
    answer: str = "",
) -> Chart:
    """A chart of these series over its horizontal and vertical axis, with the table of its data."""
    x, y = axes
    return Chart(
        title=title,
        summary=summary,
        notes=tuple(notes),
        figure=DrawnFigure(
            series=tuple(series),
            x=x,
            y=y,
            verticals=tuple(verticals),
            horizontals=tuple(horizontals),
            band=band,
            diagonal=diagonal,
            wedge=wedge,
            legend=legend,
        ),
        table=data,
        answer=answer,
    )


def line(
    name: str,
    x: Sequence[Place],
    y: Values,
    hover: str,
    *,
    index: int = 0,
    color: str | None = None,
    symbol: str | None = None,
    dash: str = "",
    width: float = 1.5,
    size: float = 8,
    ends: Sequence[Ends] = (),
) -> DrawnSeries:
    """A line through marks."""
    return DrawnSeries(
        name=name,
        shape=Shape.LINE,
        x=x,
        y=y,
        hover=hover,
        color=color or COLORS[index % len(COLORS)],
        symbol=symbol or SYMBOLS[index % len(SYMBOLS)],
        dash=dash,
        width=width,
        size=size,
        y_ends=ends,
    )


def marks(
    name: str,
    x: Sequence[Place],
    y: Sequence[Place],
    hover: str,
    *,
    color: str,
    colors: Sequence[str] = (),
    symbol: str = "circle",
    size: float = 8,
    x_ends: Sequence[Ends] = (),
) -> DrawnSeries:
    """Marks without a line; nothing of them in the legend where there are none."""
    return DrawnSeries(
        name=name,
        shape=Shape.MARKS,
        x=x,
        y=y,
        hover=hover,
        color=color,
        colors=colors,
        symbol=symbol,
        size=size,
        x_ends=x_ends,
        in_legend=bool(x),
    )


def stairs(name: str, x: Values, y: Sequence[float], hover: str, *, color: str, dash: str = "") -> DrawnSeries:
    """Flat until the next value, then up to it."""
    return DrawnSeries(name=name, shape=Shape.STAIRS, x=x, y=y, hover=hover, color=color, dash=dash, width=2)


def treads(
    name: str, x: Sequence[float], y: Values, hover: str, *, index: int = 0, color: str = "", ends: Sequence[Ends] = ()
) -> DrawnSeries:
    """The stairs of buckets: each value holds from the bucket before up to its own, and nothing lies between."""
    return DrawnSeries(
        name=name,
        shape=Shape.TREADS,
        x=x,
        y=y,
        hover=hover,
        color=color or COLORS[index % len(COLORS)],
        symbol=SYMBOLS[index % len(SYMBOLS)],
        width=2.5,
        size=7,
        y_ends=ends,
    )


def bars(
    name: str,
    rows: Sequence[str],
    values: Values,
    hover: str,
    *,
    color: str,
    ends: Sequence[Ends] = (),
    pattern: str = "",
    opacity: float | None = None,
) -> DrawnSeries:
    """Horizontal bars; with intervals they are half transparent, so that these stand out on any ground."""
    return DrawnSeries(
        name=name,
        shape=Shape.BARS,
        x=values,
        y=[label(row) for row in rows],
        hover=hover,
        color=color,
        x_ends=ends,
        pattern=pattern,
        opacity=opacity or (0.5 if ends else 1),
    )
