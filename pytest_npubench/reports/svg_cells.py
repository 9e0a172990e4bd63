"""A grid of cells drawn as SVG: shaded by how fast each is, or with a bar that two share.

One hue of growing strength over the page's ground reads the same on a light and on a dark one, on paper and in grey;
the cell's number stands in it, and the two parts of a bar differ by pattern too. Every cell says all of its numbers in
a <title>.
"""

from __future__ import annotations

from collections.abc import Iterator

from pytest_npubench.reports.plot_parts import BLUE, ORANGE, Cell, CellGrid
from pytest_npubench.reports.svg_parts import LINE_HEIGHT, WIDEST, WIDTH, escaped, fitted

SHADED_HEIGHT, SHARED_HEIGHT, BAR_HEIGHT = 20.0, 34.0, 11.0
BAR_WIDTH, SHARES_TEXT = 0.6, 9.2
"""Of a cell; its shares in numbers stand beside it."""
GAP = 1.5
LARGEST_TEXT = 14.0
FAINTEST, STRONGEST = 0.05, 0.7
"""Opacity of the hue: beyond, text on it reads badly on one of the grounds."""
NUM_SAMPLES = 5


def draw_cells(grid: CellGrid, *, label: str) -> str:
    """The SVG element; `label` is what a screen reader says of it."""
    left = 8 + WIDEST * max(len(name) for name in (grid.rows_title, *grid.rows))
    width = (WIDTH - 2 - left) / max(1, len(grid.columns))
    legend = [*_shades(grid), *_parts(grid)]
    top = LINE_HEIGHT * (3.2 if legend else 2.0)
    row_height = SHARED_HEIGHT if grid.parts else SHADED_HEIGHT
    height = top + row_height * len(grid.rows) + 4
    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH:.0f} {height:.0f}" role="img" aria-label="{escaped(label)}">',
        *legend,
        f'<text class="name" x="2" y="{top - 6:.1f}">{escaped(grid.rows_title)}</text>',
    ]
    for column, (name, below) in enumerate(grid.columns):
        middle = left + width * (column + 0.5)
        parts.append(_text(name, middle, top - 21, width - 2, kind="row"))
        parts.append(_text(below, middle, top - 6, width - 2))
    parts.append(f'<g class="series" fill="{BLUE}">')
    for down, (name, cells) in enumerate(zip(grid.rows, grid.cells, strict=True)):
        y = top + row_height * down
        parts.append(_text(name, left - 5, y + 14, left, kind="row", anchor="end"))
        for across, cell in enumerate(cells):
            if cell is not None:
                parts += _cell(cell, left + width * across, y, width - GAP, row_height - GAP)
    return "".join([*parts, "</g></svg>"])


def _cell(cell: Cell, x: float, y: float, width: float, height: float) -> Iterator[str]:
    box = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    strength = 0.0 if cell.shade is None else FAINTEST + (STRONGEST - FAINTEST) * cell.shade
    yield f'<rect {box} fill-opacity="{strength:.3f}"><title>{escaped(cell.sentence)}</title></rect>'
    if cell.share is not None:
        bar, down = width * BAR_WIDTH, y + height - BAR_HEIGHT - 2
        yield from _bar(cell.share, x + 2, down, bar)
        yield _text(
            cell.aside, x + width - 2, down + BAR_HEIGHT - 2, width - bar - 6, anchor="end", largest=SHARES_TEXT
        )
    if cell.steps:
        yield f'<path class="step" d="M{x - GAP:.1f} {y - GAP / 2:.1f}h{width + GAP:.1f}"/>'
    yield _text(cell.text, x + width / 2, y + 14, width, kind="row")


def _bar(share: float, x: float, y: float, width: float) -> Iterator[str]:
    first = width * share
    for start, long, color, pattern in (
        (x, first, BLUE, ' stroke="none"'),
        (x + first, width - first, ORANGE, f' class="hatched" stroke="{ORANGE}"'),
    ):
        if long > 0:
            box = f'x="{start:.1f}" y="{y:.1f}" width="{long:.1f}" height="{BAR_HEIGHT:.0f}"'
            yield f'<rect{pattern} {box} fill="{color}" pointer-events="none"/>'


def _text(
    text: str, x: float, y: float, room: float, *, kind: str = "", anchor: str = "middle", largest: float = LARGEST_TEXT
) -> str:
    """Writes text as large as it can be in that room, with a little left at its sides."""
    style = f' class="{kind}"' if kind else ""
    attributes = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{fitted(text, room, largest)}'
    return f'<text{style} {attributes} stroke="none" pointer-events="none">{escaped(text)}</text>'


def _shades(grid: CellGrid) -> Iterator[str]:
    if grid.shades is None:
        return
    low, high = grid.shades
    yield f'<text x="2" y="12">{escaped(low)}</text>'
    start = 8 + WIDEST * len(low)
    for sample in range(NUM_SAMPLES):
        strength = FAINTEST + (STRONGEST - FAINTEST) * sample / (NUM_SAMPLES - 1)
        box = f'x="{start + 20 * sample:.1f}" y="2" width="20" height="12"'
        yield f'<rect {box} fill="{BLUE}" fill-opacity="{strength:.3f}"/>'
    yield f'<text x="{start + 20 * NUM_SAMPLES + 6:.1f}" y="12">{escaped(high)}</text>'


def _parts(grid: CellGrid) -> Iterator[str]:
    x = 2.0
    for name, color, pattern in zip(grid.parts or (), (BLUE, ORANGE), ("", " class='hatched'"), strict=False):
        yield f'<rect{pattern} x="{x:.1f}" y="3" width="18" height="10" fill="{color}" stroke="{color}"/>'
        yield f'<text x="{x + 24:.1f}" y="12">{escaped(name)}</text>'
        x += 38 + WIDEST * len(name)
