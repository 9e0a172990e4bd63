"""A chart drawn as SVG: it lives in the page without a script, follows its light or dark colours by CSS classes, and
scales with its view box. Every mark says its numbers in a <title>, which browsers show on hover and readers read.

Our own few hundred lines rather than a library's: the page needs 10,000 cases in 15 MB, and one style, light and dark,
for all charts, where a library writes its colours into each.

Units are those of the view box, 500 wide. Text comes from users and devices, so all of it is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_npubench.reports import definitions
from pytest_npubench.reports.plot_parts import (
    Axis,
    CellGrid,
    DrawnFigure,
    DrawnSeries,
    Place,
    Shape,
    has_place,
    round_ticks,
)
from pytest_npubench.reports.svg_cells import draw_cells
from pytest_npubench.reports.svg_parts import (
    CHARACTER,
    DASHES,
    LINE_HEIGHT,
    OPEN,
    SYMBOL_PATHS,
    WIDEST,
    WIDTH,
    circle,
    fitted,
    legend_entries,
)
from pytest_npubench.reports.svg_parts import escaped as _text

PLOT_HEIGHT = 230.0
ROW_HEIGHT, BAR_HEIGHT = 36.0, 15.0
BOXES_HEIGHT, BOXES_TOP = 95.0, 20.0
"""Of a row with boxes, and what its name takes of it."""
MAX_TITLES = 400
"""Of a series: more marks are one path, whose numbers stand in the table alone."""


@dataclass(frozen=True, slots=True)
class Scale:
    """A scale turns values of an axis into units of the view box; `position` is None for what no axis shows."""

    axis: Axis
    low: float
    high: float
    start: float
    end: float

    def position(self, value: Place) -> float | None:
        if isinstance(value, str):
            names = self.axis.names
            if value not in names:
                return None
            return self.start + (self.end - self.start) * (names.index(value) + 0.5) / len(names)
        if value is None or self.axis.names or not has_place(value, self.axis.log):
            return None
        low, high, at = (math.log10(part) if self.axis.log else part for part in (self.low, self.high, value))
        placed = self.start + (self.end - self.start) * (at - low) / (high - low)
        return min(max(placed, -2 * WIDTH), 3 * WIDTH)


def draw(figure: DrawnFigure | CellGrid, *, label: str) -> str:
    """The SVG element; `label` is what a screen reader says of it."""
    if isinstance(figure, CellGrid):
        return draw_cells(figure, label=label)
    rows = figure.y.names
    legend = legend_entries(figure) if figure.legend else []
    top = LINE_HEIGHT * (1 + max((row for _, row, _ in legend), default=-1)) + 8 + (0 if rows else LINE_HEIGHT)
    num_bars = max(1, sum(series.shape is Shape.BARS for series in figure.series))
    has_boxes = any(series.shape is Shape.BOXES for series in figure.series)
    row_height = BOXES_HEIGHT if has_boxes else ROW_HEIGHT + BAR_HEIGHT * (num_bars - 1)
    bottom = top + (row_height * len(rows) if rows else PLOT_HEIGHT)
    y_scale = _scale(figure.y, _values(figure, "y"), *((top, bottom) if rows else (bottom, top)))
    y_ticks = [] if rows else _ticks(y_scale, 6)
    left = 6.0 if rows else 10 + WIDEST * max((len(text) for _, text in y_ticks), default=1)
    x_scale = _scale(figure.x, _values(figure, "x"), left, WIDTH - 12)
    height = bottom + LINE_HEIGHT * (2.2 if figure.x.title else 1.4)
    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH:.0f} {height:.0f}" role="img" aria-label="{_text(label)}">',
        *_frame(figure, x_scale, y_scale, y_ticks),
        *_drawn(figure, x_scale, y_scale, row_height),
        *_row_names(y_scale, row_height),
        *(drawn for _, _, drawn in legend),
        "</svg>",
    ]
    return "".join(parts)


def _values(figure: DrawnFigure, side: str) -> list[float]:
    """All numbers that lie on an axis, ends of intervals too."""
    values: list[Place] = []
    for series in figure.series:
        values += series.x if side == "x" else series.y
        values += [end for pair in (series.x_ends if side == "x" else series.y_ends) if pair for end in pair]
        if series.shape is Shape.SPAN and side == "x":
            values += [-value for value in series.x if isinstance(value, (int, float))]
    values += figure.verticals if side == "x" else figure.horizontals
    return [value for value in values if isinstance(value, (int, float))]


def _scale(axis: Axis, values: Sequence[float], start: float, end: float) -> Scale:
    """What the axis covers: its own span, or all values and a little more."""
    if axis.names:
        return Scale(axis, 0, 1, start, end)
    shown = [value for value in values if has_place(value, axis.log)]
    low, high = axis.span or (min(shown, default=1.0), max(shown, default=1.0))
    if axis.log:
        low, high = (low, high) if axis.span else (low / 1.15, high * 1.15)
        return Scale(axis, low, high if high > low * 1.0001 else low * 2, start, end)
    if axis.from_zero and not axis.span:
        low, high = min(0.0, low), max(0.0, high)
    if not axis.span:
        room = (high - low) * 0.05
        low, high = low - (0 if axis.from_zero and low == 0 else room), high + room
    if high - low <= 1e-9 * max(abs(low), abs(high)):  # one value, or what no tick can tell apart
        low, high = low - (abs(low) or 1) * 0.5, low + (abs(low) or 1) * 0.5
    return Scale(axis, low, high, start, end)


def _ticks(scale: Scale, wanted: int) -> list[tuple[float, str]]:
    """Says where an axis has a line, and what stands beside it; text that would lie on its neighbour is left out."""
    axis = scale.axis
    if axis.names:
        values: Sequence[Place] = axis.names
    elif axis.ticks:
        values = axis.ticks
    elif axis.log:
        values = round_ticks(scale.low, scale.high)
        if len(values) > 2 * wanted:
            values = [value for value in values if f"{value:e}"[0] == "1"]
    else:
        values = _round_steps(scale.low, scale.high, wanted)
    places = [
        (at, value if isinstance(value, str) else number(value))
        for value in values
        if value is not None and (at := scale.position(value)) is not None
    ]
    return [
        (at, text) for at, text in places if min(scale.start, scale.end) - 1 <= at <= max(scale.start, scale.end) + 1
    ]


def number(value: float) -> str:
    """Writes the number of a tick with as many digits as it needs."""
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        return f"{value:,.6g}"
    return f"{value:.3g}"


def _round_steps(low: float, high: float, wanted: int) -> list[float]:
    rough = (high - low) / wanted
    decade = 10.0 ** math.floor(math.log10(rough))
    step = next(digit * decade for digit in (1, 2, 5, 10) if digit * decade >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(index * step, 12) for index in range(first, min(last, first + 20) + 1)]


def _frame(figure: DrawnFigure, x: Scale, y: Scale, y_ticks: Sequence[tuple[float, str]]) -> Iterator[str]:
    """Grid, axes' texts, guides and bands, below the series."""
    top, bottom = min(y.start, y.end), max(y.start, y.end)
    if figure.band:
        low, high = (x.position(end) for end in figure.band)
        if low is not None and high is not None:
            low, high = max(low, x.start), min(high, x.end)
            yield f'<path class="band" d="M{low:.1f} {top:.1f}H{max(low, high):.1f}V{bottom:.1f}H{low:.1f}Z"/>'
    yield '<g class="grid">'
    x_ticks = _ticks(x, 6)
    yield from (f'<path d="M{at:.1f} {top:.1f}V{bottom:.1f}"/>' for at, _ in x_ticks)
    yield from (f'<path d="M{x.start:.1f} {at:.1f}H{x.end:.1f}"/>' for at, _ in y_ticks)
    yield "</g>"
    zero = None if figure.x.log else x.position(0.0)
    if figure.y.names and zero is not None and x.start <= zero <= x.end:
        yield f'<path class="axis" d="M{zero:.1f} {top:.1f}V{bottom:.1f}"/>'
    if not figure.y.names:
        yield f'<path class="axis" d="M{x.start:.1f} {top:.1f}V{bottom:.1f}H{x.end:.1f}"/>'
    yield '<g class="guide">'
    yield from (
        f'<path d="M{at:.1f} {top:.1f}V{bottom:.1f}"/>' for at in map(x.position, figure.verticals) if at is not None
    )
    yield from (
        f'<path d="M{x.start:.1f} {at:.1f}H{x.end:.1f}"/>'
        for at in map(y.position, figure.horizontals)
        if at is not None
    )
    yield "</g>"
    yield from _diagonal(figure, x, y)
    last = -WIDTH
    for at, text in x_ticks:
        width = WIDEST * len(text)
        middle = min(max(at, width / 2), WIDTH - width / 2)
        if middle - width / 2 > last + 6:
            yield f'<text x="{middle:.1f}" y="{bottom + 15:.1f}" text-anchor="middle">{_text(text)}</text>'
            last = middle + width / 2
    last = bottom + LINE_HEIGHT
    for at, text in sorted(y_ticks, reverse=True):
        if last - at >= LINE_HEIGHT - 2:
            yield f'<text x="{x.start - 5:.1f}" y="{at + 4:.1f}" text-anchor="end">{_text(text)}</text>'
            last = at
    if figure.y.title:
        yield f'<text class="name" x="2" y="{top - 9:.1f}">{_named(figure.y.title)}</text>'
    if figure.x.title:
        middle = (x.start + x.end) / 2
        yield f'<text class="name" x="{middle:.1f}" y="{bottom + 35:.1f}" text-anchor="middle">{_named(figure.x.title)}'
        yield "</text>"


def _named(title: str) -> str:
    """An axis' name, which says on hover what its metric means."""
    said = definitions.of(title)
    return f"{_text(title)}<title>{_text(said)}</title>" if said else _text(title)


def _diagonal(figure: DrawnFigure, x: Scale, y: Scale) -> Iterator[str]:
    """Draws where both axes have one value, and the wedge (1 - limit) to (1 + limit) around it."""
    if not figure.diagonal:
        return

    def path(low: float, high: float, factor: float) -> list[str]:
        points = ((x.position(value), y.position(value * factor)) for value in (low, high))
        return [f"{across:.1f} {down:.1f}" for across, down in points if across is not None and down is not None]

    ends = (x.low, x.high)
    if figure.wedge is not None:
        lower, upper = path(*ends, 1 - figure.wedge), path(*ends, 1 + figure.wedge)
        yield f'<path class="band" d="M{"L".join([*lower, *reversed(upper)])}Z"><title>within the limit</title></path>'
    yield f'<path class="equal" d="M{"L".join(path(*ends, 1.0))}"/>'


def _row_names(y: Scale, row_height: float) -> Iterator[str]:
    """The categories of horizontal bars stand above their rows, so that a long name takes nothing from the bars."""
    for name in y.axis.names if y.start < y.end else ():
        at = y.position(name)
        if at is not None:
            attributes = f'x="4" y="{at - row_height / 2 + 14:.1f}"{fitted(name, WIDTH - 8)}'
            yield f'<text class="row" {attributes}>{_text(name)}</text>'


def _drawn(figure: DrawnFigure, x: Scale, y: Scale, row_height: float) -> Iterator[str]:
    """Every series as a group of its own, spans behind all others."""
    bars = [series for series in figure.series if series.shape is Shape.BARS]
    for series in sorted(figure.series, key=lambda series: series.shape is not Shape.SPAN):
        opacity = f' opacity="{series.opacity:g}"' if series.opacity != 1 else ""
        color = f'stroke="{series.color}" fill="{series.color}"{opacity}'
        yield f'<g class="series" data-name="{_text(series.title or series.name)}" {color}>'
        if series.shape in (Shape.BARS, Shape.SPAN):
            lane = bars.index(series) if series.shape is Shape.BARS else 0
            yield from _bars(series, x, y, row_height, lane)
        elif series.shape is Shape.BOXES:
            yield from _boxes(series, x, y, row_height)
        else:
            drop = row_height * 0.18 if figure.y.names else 0.0
            yield from _path(series, x, y)
            yield from _whiskers(series, x, y, drop)
            yield from _symbols(series, x, y, drop)
        yield "</g>"


def _bars(series: DrawnSeries, x: Scale, y: Scale, row_height: float, lane: int) -> Iterator[str]:
    zero = x.position(0.0) if not x.axis.log else x.start
    for index, (value, name) in enumerate(zip(series.x, series.y, strict=False)):
        at, middle = x.position(value), y.position(name)
        if at is None or middle is None or zero is None or isinstance(value, str):
            continue
        up = middle - row_height / 2 + ROW_HEIGHT / 2 + BAR_HEIGHT * lane
        width = abs(at - zero)
        start = min(at, zero) - (width if series.shape is Shape.SPAN else 0)
        across = width * 2 if series.shape is Shape.SPAN else width
        style = ' class="hatched"' if series.pattern else ' stroke="none"'
        box = f'x="{start:.1f}" y="{up + 1:.1f}" width="{across:.1f}" height="{BAR_HEIGHT - 3:.1f}"'
        yield f"<rect{style} {box}>{_title(series, value, name)}</rect>"
        ends = series.x_ends[index] if index < len(series.x_ends) else None
        yield from _whisker(x, ends, up + BAR_HEIGHT / 2 - 0.5, level=True)


def _boxes(series: DrawnSeries, x: Scale, y: Scale, row_height: float) -> Iterator[str]:
    """Cut off at the axis' ends; a label stands in its box where it fits."""
    style = ' class="hatched pale"' if series.pattern else ' class="box"'
    rows = zip(series.x, series.y, series.x_ends, series.y_ends, strict=True)
    for index, (value, name, across, down) in enumerate(rows):
        middle = y.position(name)
        start, end = (x.position(one) for one in across) if across else (None, None)
        if middle is None or start is None or end is None or down is None:
            continue
        start, end = max(start, x.start), min(end, x.end)
        top, height = middle - row_height / 2 + BOXES_TOP, row_height - BOXES_TOP - 3
        up, width = top + height * down[0], end - start
        if width <= 0:
            continue
        box = f'x="{start:.1f}" y="{up:.1f}" width="{width:.1f}" height="{height * (down[1] - down[0]):.1f}"'
        yield f"<rect{style} {box}>{_title(series, value, name, index)}</rect>"
        text = series.labels[index] if index < len(series.labels) else ""
        if text and 12 * CHARACTER * len(text) + 2 <= width and height * (down[1] - down[0]) >= 9:
            at = top + height * (down[0] + down[1]) / 2 + 4
            attributes = (
                f'x="{start + width / 2:.1f}" y="{at:.1f}"{fitted(text, width, height * (down[1] - down[0]) + 1)}'
            )
            yield f'<text class="in" {attributes} text-anchor="middle">{_text(text)}</text>'


def _path(series: DrawnSeries, x: Scale, y: Scale) -> Iterator[str]:
    """The line between the marks, with its gaps."""
    if series.shape is Shape.MARKS:
        return
    dash = f' stroke-dasharray="{DASHES[series.dash]}"' if series.dash else ""
    steps: list[str] = []
    before: tuple[float, float] | None = None
    for at in _places(series, x, y):
        if series.shape is Shape.TREADS:
            if at is not None:
                start = x.start if before is None else before[0]
                steps.append(f"M{start:.1f} {at[1]:.1f}H{at[0]:.1f}")
        elif at is not None:
            if before is None:
                steps.append(f"M{at[0]:.1f} {at[1]:.1f}")
            else:
                steps.append(
                    f"H{at[0]:.1f}V{at[1]:.1f}" if series.shape is Shape.STAIRS else f"L{at[0]:.1f} {at[1]:.1f}"
                )
        before = at if at is not None or series.shape is not Shape.TREADS else before
    if steps and series.shape is Shape.AREA:
        ends = [at for at in _places(series, x, y) if at is not None]
        yield f'<path stroke="none" fill-opacity=".18" d="{"".join(steps)}V{y.start:.1f}H{ends[0][0]:.1f}Z"/>'
    if steps:
        yield f'<path fill="none" stroke-width="{series.width:g}"{dash} d="{"".join(steps)}"/>'


def _places(series: DrawnSeries, x: Scale, y: Scale) -> list[tuple[float, float] | None]:
    points = ((x.position(across), y.position(down)) for across, down in zip(series.x, series.y, strict=False))
    return [None if across is None or down is None else (across, down) for across, down in points]


def _whiskers(series: DrawnSeries, x: Scale, y: Scale, drop: float) -> Iterator[str]:
    for index, at in enumerate(_places(series, x, y)):
        if at is None:
            continue
        if index < len(series.x_ends):
            yield from _whisker(x, series.x_ends[index], at[1] + drop, level=True)
        if index < len(series.y_ends):
            yield from _whisker(y, series.y_ends[index], at[0], level=False)


def _whisker(scale: Scale, ends: tuple[float, float] | None, across: float, *, level: bool) -> Iterator[str]:
    low, high = (scale.position(end) for end in ends) if ends else (None, None)
    if low is None or high is None or (low == high):
        return
    if level:
        path = f"M{low:.1f} {across - 3:.1f}v6m0 -3H{high:.1f}m0 -3v6"
    else:
        path = f"M{across - 3:.1f} {low:.1f}h6m-3 0V{high:.1f}m-3 0h6"
    yield f'<path class="whisker" d="{path}"/>'


def _symbols(series: DrawnSeries, x: Scale, y: Scale, drop: float) -> Iterator[str]:
    places = _places(series, x, y)
    radius = series.size / 2
    if not series.symbol or len(places) > MAX_TITLES:
        yield from _plain_marks(series, places, radius)
        return
    is_open = series.symbol.endswith("-open")
    outline = SYMBOL_PATHS.get(series.symbol.removesuffix("-open"), circle)
    style = ' fill="none" stroke-width="2"' if is_open else ' stroke="none"'
    for index, (at, across, down) in enumerate(zip(places, series.x, series.y, strict=False)):
        if at is not None:
            color = f' style="color:{series.colors[index]};stroke:currentColor"' if index < len(series.colors) else ""
            mark_style = ' stroke-width="2"' if not is_open and outline in OPEN else style
            path = f'd="{outline(at[0], at[1] + drop, radius)}"'
            yield f"<path{mark_style}{color} {path}>{_title(series, across, down)}</path>"


def _plain_marks(series: DrawnSeries, places: Sequence[tuple[float, float] | None], radius: float) -> Iterator[str]:
    """Marks that say nothing, in one path: of a series without symbols, only what hover finds."""
    if series.symbol:
        dots = "".join(f"M{at[0]:.1f} {at[1]:.1f}h0" for at in places if at is not None)
        yield f'<path fill="none" stroke-linecap="round" stroke-width="{radius:g}" d="{dots}"/>'
        return
    yield f"<title>{_text(series.title or series.name)}</title>"


def _title(series: DrawnSeries, x: Place, y: Place, index: int = 0) -> str:
    """What a mark says: the series, then its numbers."""
    try:
        said = series.says[index] if series.says else series.hover.format(x=x, y=y)
    except (ValueError, TypeError):
        said = f"{x}: {y}"
    return f"<title>{_text(': '.join(part for part in (series.title or series.name, said) if part))}</title>"
