"""What pictures share: their measures in units of the view box, safe text, symbols and the legend that explains them.

A symbol is the path of an outline around (x, y), about r from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from html import escape

from pytest_npubench.reports.plot_parts import DrawnFigure, DrawnSeries, Shape

WIDTH = 500.0
PHONE_TEXT = 17.5
"""Units of height of letters on a phone, whose screen shrinks a chart most: there is room for them everywhere."""
CHARACTER = 0.55
"""Widest mean width of a character of an axis, as a part of its height."""
WIDEST = CHARACTER * PHONE_TEXT
LINE_HEIGHT = 20.0
MAX_CATEGORY = 60
DASHES = {"dash": "6 4", "dot": "2 3"}


def escaped(text: object) -> str:
    """Characters that XML cannot hold become a question mark."""
    words = str(text)
    if not words.isprintable():
        words = "".join(one if one.isprintable() or one == " " else "\ufffd" for one in words)
    return escape(words)


def fitted(text: str, width: float, height: float = PHONE_TEXT) -> str:
    """Returns the style of a text that is as large as others, or as has room in so many units."""
    most = min(0.94 * width / (CHARACTER * max(1, len(text))), height)
    return "" if most >= PHONE_TEXT else f' style="--most:{most:.1f}px"'


def circle(x: float, y: float, r: float) -> str:
    return f"M{x - r:.1f} {y:.1f}a{r:g} {r:g} 0 1 0 {2 * r:g} 0a{r:g} {r:g} 0 1 0 {-2 * r:g} 0"


def square(x: float, y: float, r: float) -> str:
    return f"M{x - r:.1f} {y - r:.1f}h{2 * r:g}v{2 * r:g}h{-2 * r:g}Z"


def diamond(x: float, y: float, r: float) -> str:
    wide = 1.25 * r
    return f"M{x - wide:.1f} {y:.1f}l{wide:g} {wide:g} {wide:g} {-wide:g} {-wide:g} {-wide:g}Z"


def triangle(x: float, y: float, r: float) -> str:
    return f"M{x - r:.1f} {y + r:.1f}h{2 * r:g}l{-r:g} {-2 * r:g}Z"


def cross(x: float, y: float, r: float) -> str:
    return f"M{x - r:.1f} {y:.1f}h{2 * r:g}m{-r:g} {-r:g}v{2 * r:g}"


def x_cross(x: float, y: float, r: float) -> str:
    return f"M{x - r:.1f} {y - r:.1f}l{2 * r:g} {2 * r:g}m{-2 * r:g} 0l{2 * r:g} {-2 * r:g}"


def star(x: float, y: float, r: float) -> str:
    """Five points, the first at the top."""
    turns = [(math.pi * place / 5, 1.3 * r if place % 2 == 0 else 0.52 * r) for place in range(10)]
    corners = " ".join(f"{x + out * math.sin(turn):.1f} {y - out * math.cos(turn):.1f}" for turn, out in turns)
    return f"M{corners}Z"


SYMBOL_PATHS: dict[str, Callable[[float, float, float], str]] = {
    "circle": circle,
    "square": square,
    "diamond": diamond,
    "triangle-up": triangle,
    "cross": cross,
    "x": x_cross,
    "star": star,
}
OPEN = (cross, x_cross)
"""Outlines that enclose nothing, so that they are drawn as lines."""


def legend_entries(figure: DrawnFigure) -> list[tuple[float, int, str]]:
    """Entries from left to right in as many rows as they take: where each begins, its row, and how it is drawn."""
    entries: list[tuple[float, int, str]] = []
    across, row = 4.0, 0
    for series in figure.series:
        if not series.in_legend:
            continue
        name = series.name if len(series.name) <= MAX_CATEGORY else f"{series.name[: MAX_CATEGORY - 1]}…"
        width = 26 + WIDEST * len(name)
        if across > 4 and across + width > WIDTH:
            across, row = 4.0, row + 1
        down = LINE_HEIGHT * row + 11
        entries.append(
            (
                across,
                row,
                f'{_key(series, across, down)}<text x="{across + 24:.0f}" y="{down + 4:.0f}">{escaped(name)}</text>',
            )
        )
        across += width + 8
    return entries


def _key(series: DrawnSeries, x: float, y: float) -> str:
    """The sample of a series in the legend."""
    head = f'<g stroke="{series.color}" fill="{series.color}"'
    if series.shape in (Shape.BARS, Shape.SPAN, Shape.BOXES):
        style = ' class="hatched"' if series.pattern else ' stroke="none"'
        box = f'x="{x:.0f}" y="{y - 5:.0f}" width="18" height="10"'
        return f'{head} opacity="{series.opacity:g}"><rect{style} {box}/></g>'
    dash = f' stroke-dasharray="{DASHES[series.dash]}"' if series.dash else ""
    line = "" if series.shape is Shape.MARKS else f'<path fill="none" stroke-width="2"{dash} d="M{x:.0f} {y:.0f}h18"/>'
    if not series.symbol:
        return f"{head}>{line}</g>"
    outline = SYMBOL_PATHS.get(series.symbol.removesuffix("-open"), circle)
    style = ' fill="none" stroke-width="2"' if series.symbol.endswith("-open") or outline in OPEN else ""
    return f'{head}>{line}<path{style} d="{outline(x + 9, y, 4)}"/></g>'
