"""What suites build their sections of: tables, charts, and the lines, stairs, marks and bars that charts are drawn of.

Values are numbers in the unit of their axis; None leaves a gap. `place` is a series' number in its chart: colour and
symbol follow from it unless they are given, so that nothing hangs on colour alone. `ends` are intervals, a pair for
each value or None.

Worked example: table("Times", (("arm", lambda row: row.arm), ("ms", lambda row: milliseconds(row.total_s))), rows).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from pytest_npubench.reports import number_text
from pytest_npubench.reports.page import Chart, Table
from pytest_npubench.reports.plot_parts import COLORS, SYMBOLS, Part, label, layout

RowT = TypeVar("RowT")
Columns = Sequence[tuple[str, Callable[[RowT], str]]]
"""The head of each column, and the text of its cell in a row."""
Values = Sequence[float | None]
Ends = Sequence[tuple[float, float] | None]

NO_BREAK = "\u00a0"  # a cell breaks before its interval, not inside


def plain(value: float | None) -> str:
    """Four significant digits; a dash where it is unknown."""
    return number_text.UNKNOWN if value is None else number_text.plain(value)


def ratio(value: float | None, ends: Sequence[float] | None = None) -> str:
    """With its 95 % interval where it is known: "0.931 (95 % 0.9 to 0.97)"."""
    if value is None:
        return number_text.UNKNOWN
    interval = f" (95{NO_BREAK}%{NO_BREAK}{ends[0]:.3g}{NO_BREAK}to{NO_BREAK}{ends[1]:.3g})" if ends else ""
    return f"{value:.3g}{interval}"


def table(
    caption: str,
    columns: Columns[RowT],
    rows: Iterable[RowT],
    *,
    note: str = "",
    last: Sequence[tuple[str, ...]] = (),
    without_unknown: bool = False,
) -> Table:
    """A row of cells for each of `rows`, and those of `last`. `without_unknown`: columns but the first in which no row
    has anything are left out."""
    cells = [*(tuple(cell(row) for _, cell in columns) for row in rows), *last]
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


def series_table(
    caption: str,
    head: str,
    rows: Sequence[str],
    series: Mapping[str, Sequence[str]],
    *,
    note: str = "",
    last: Sequence[tuple[str, ...]] = (),
) -> Table:
    """A column of cells for each series, beside what the rows are called."""
    cells = ((name, *(column[place] for column in series.values())) for place, name in enumerate(rows))
    return Table(caption=caption, header=(head, *series), rows=(*cells, *last), note=note)


def chart(
    title: str,
    summary: str,
    notes: Iterable[str],
    traces: Sequence[Part],
    axes: tuple[Part, Part],
    data: Table,
    *,
    rows: int = 0,
    **settings: Any,
) -> Chart:
    """A chart of these traces over its horizontal and vertical axis, with the table of its data. `rows`: the category
    rows of a horizontal chart; settings are the layout's own."""
    return Chart(
        title=title,
        summary=summary,
        notes=tuple(notes),
        figure={"data": list(traces), "layout": layout(*axes, **settings)},
        table=data,
        rows=rows,
    )


def line(
    name: str,
    x: Sequence[object],
    y: Values,
    hover: str,
    *,
    place: int = 0,
    color: str | None = None,
    symbol: str | None = None,
    dash: str | None = None,
    width: float = 1.5,
    size: float = 8,
    ends: Ends | None = None,
) -> Part:
    """A line through marks; `hover` is plotly's template of a point, "%{x} tokens: %{y:.4g} ms"."""
    color = color or COLORS[place % len(COLORS)]
    trace: Part = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": label(name),
        "x": list(x),
        "y": list(y),
        "line": {"color": color, "width": width, **({} if dash is None else {"dash": dash})},
        "marker": {"color": color, "symbol": symbol or SYMBOLS[place % len(SYMBOLS)], "size": size},
        "hovertemplate": hover,
    }
    return trace if ends is None else {**trace, "error_y": error_bars(y, ends)}


def marks(
    name: str,
    x: Sequence[object],
    y: Sequence[object],
    hover: str,
    *,
    color: str | Sequence[str],
    symbol: str = "circle",
    size: float = 8,
    **settings: Any,
) -> Part:
    """Marks without a line; an open symbol is drawn with a stronger edge."""
    marker: Part = {"color": color, "symbol": symbol, "size": size}
    if symbol.endswith("-open"):
        marker["line"] = {"width": 2}
    return {
        "type": "scatter",
        "mode": "markers",
        "name": label(name),
        "x": list(x),
        "y": list(y),
        "marker": marker,
        "hovertemplate": hover,
        **settings,
    }


def stairs(name: str, x: Values, y: Sequence[float], hover: str, *, color: str, dash: str = "solid") -> Part:
    """Flat until the next value, then up to it."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": label(name),
        "x": list(x),
        "y": list(y),
        "line": {"shape": "hv", "color": color, "dash": dash, "width": 2},
        "hovertemplate": hover,
    }


def bars(
    name: str,
    rows: Sequence[str],
    values: Values,
    hover: str,
    *,
    color: str,
    ends: Ends | None = None,
    pattern: str = "",
    opacity: float | None = None,
) -> Part:
    """Horizontal bars; with intervals they are half transparent, so that these stand out on any ground."""
    marker: Part = {"color": color}
    if pattern:
        marker["pattern"] = {"shape": pattern, "size": 6, "solidity": 0.35}
    shown = 0.5 if opacity is None and ends is not None else opacity
    trace: Part = {
        "type": "bar",
        "orientation": "h",
        "name": label(name),
        "y": [label(row) for row in rows],
        "x": list(values),
        "marker": marker if shown is None else {**marker, "opacity": shown},
        "hovertemplate": hover,
    }
    return trace if ends is None else {**trace, "error_x": {**error_bars(values, ends), "color": color, "thickness": 2}}


def error_bars(values: Values, ends: Ends) -> Part:
    """From each value to the ends of its interval; none where it has no interval."""
    known = [(value or 0.0, pair or (value or 0.0, value or 0.0)) for value, pair in zip(values, ends, strict=True)]
    return {
        "type": "data",
        "symmetric": False,
        "array": [max(0.0, high - value) for value, (_, high) in known],
        "arrayminus": [max(0.0, value - low) for value, (low, _) in known],
        "thickness": 1.5,
    }
