"""Parts of plotly figures as plain data: the page draws them, so that no figure needs plotly in Python.

The colours are of middle lightness and read on a light and on a dark ground; text and grid lines take the page's own.
Series differ by marker or pattern as well, so that nothing hangs on colour alone.

Worked example: round_ticks(30, 600) == [50.0, 100.0, 200.0, 500.0].
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from typing import Any

BLUE, ORANGE, GREEN, PURPLE, PINK = "#3b82f6", "#d97706", "#059669", "#8b5cf6", "#db2777"
RED, GREY = "#dc2626", "#808a96"
SERIES = (BLUE, ORANGE, GREEN, PURPLE)
COLORS = (*SERIES, PINK, RED, GREY)
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x")
BAND = "rgba(5, 150, 105, 0.12)"
MAX_LABEL = 36
NOISE = "rgba(128, 138, 150, 0.35)"

Part = dict[str, Any]


def label(text: str) -> str:
    """Text that plotly shows as it is, for it reads a few HTML tags in labels; of a long one, a path say, the end."""
    return html.escape(text if len(text) <= MAX_LABEL else f"…{text[1 - MAX_LABEL :]}", quote=False)


def axis(title: str, **settings: Any) -> Part:
    return {"title": {"text": title}, "automargin": True, **settings}


def log_axis(title: str, ticks: Sequence[float], **settings: Any) -> Part:
    """A logarithmic axis with a tick at each of these and none between them."""
    texts = [f"{tick:,.4g}" if tick < 1e3 else f"{tick:.0f}" for tick in ticks]
    return axis(title, type="log", tickvals=list(ticks), ticktext=texts, **settings)


def category_axis(names: Sequence[str]) -> Part:
    """Names from top to bottom, as in a table."""
    return axis("", type="category", categoryorder="array", categoryarray=list(names), autorange="reversed")


def layout(x: Part, y: Part, **settings: Any) -> Part:
    return {
        "xaxis": x,
        "yaxis": y,
        "margin": {"l": 8, "r": 12, "t": 8, "b": 8},
        "showlegend": True,
        "legend": {
            "orientation": "h",
            "traceorder": "normal",  # plotly reverses it where a trace is filled
            "x": 0,
            "y": 1.02,
            "xanchor": "left",
            "yanchor": "bottom",
        },
        "hoverlabel": {"align": "left"},
        **settings,
    }


def vertical_lines(positions: Iterable[float]) -> list[Part]:
    """Dotted lines over the whole height."""
    line = {"color": GREY, "width": 1, "dash": "dot"}
    return [{"type": "line", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1, "line": line} for x in positions]


def horizontal_line(position: float) -> Part:
    """A dotted line over the whole width."""
    line = {"color": GREY, "width": 1, "dash": "dot"}
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": position, "y1": position, "line": line}


def vertical_band(low: float, high: float) -> Part:
    """The allowed range of a horizontal axis, below the traces."""
    edge = {"color": GREEN, "width": 1, "dash": "dash"}
    band = {"type": "rect", "x0": low, "x1": high, "yref": "paper", "y0": 0, "y1": 1, "layer": "below"}
    return {**band, "fillcolor": BAND, "line": edge}


def milliseconds(values: Iterable[float | None]) -> list[float | None]:
    return [None if value is None else value * 1e3 for value in values]


def percents(values: Iterable[float | None]) -> list[float | None]:
    return [None if value is None else value * 100 for value in values]


def round_ticks(low: float, high: float) -> list[float]:
    """The numbers 1, 2 and 5 times a power of ten from low to high, both above 0."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [digit * 10.0**decade for decade in decades for digit in (1, 2, 5)]
    return [tick for tick in ticks if low <= tick <= high]


def spread_axis(title: str, values: Sequence[float]) -> Part:
    """Logarithmic, a little wider than the values, all above 0."""
    low, high = min(values) / 1.6, max(values) * 1.6
    return log_axis(title, round_ticks(low, high), range=[math.log10(low), math.log10(high)])
