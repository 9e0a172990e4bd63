"""Seconds of an iteration from a table: what someone measured, or an operator model says, on a grid.

CSV with a header and a line a point of the grid, in any order, every combination of its three axes once:

    prefill_tokens, decode_rows, mean_context_tokens, seconds

mean_context_tokens is what a decode row reads. Between points seconds are linear in each axis (where nothing decodes
the context does not count); beyond them nothing is said: an iteration out there is refused. Layer groups take their
share of the layers.

Worked example: 10 ms for 8 rows at 1,000 and 14 ms at 3,000 tokens of context are 12 ms at 2,000.
"""

from __future__ import annotations

import io
import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product, zip_longest
from pathlib import Path

from pytest_npubench.core.documents import csv_rows
from pytest_npubench.core.regular_file import SMALL_BYTES, read_text
from pytest_npubench.errors import LengthError, StoreError
from pytest_npubench.extensions.planning.virtual.step_cost import StepWork

AXES = ("prefill_tokens", "decode_rows", "mean_context_tokens")
Point = tuple[float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCost:
    """A StepCost. axes: the values of each, ascending; seconds: of every point of the grid."""

    num_layers: int
    axes: tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]
    seconds_at: Mapping[Point, float]

    def seconds(self, work: StepWork) -> float:
        """Raises LengthError for an iteration beyond the table."""
        context = work.context_tokens / work.decode_rows if work.decode_rows else self.axes[2][0]
        total_s = 0.0
        for first, stop, prefill, _ in work.passes:
            tokens = sum(row.num_tokens for row in prefill)
            if tokens or work.decode_rows:
                share = (stop - first) / self.num_layers
                total_s += share * self._between((tokens, work.decode_rows, context))
        return total_s

    def _between(self, wanted: Point) -> float:
        ends = [_ends(axis, values, at) for axis, values, at in zip(AXES, self.axes, wanted, strict=True)]
        return sum(
            one[1] * two[1] * three[1] * self.seconds_at[one[0], two[0], three[0]] for one, two, three in product(*ends)
        )


def _ends(axis: str, values: tuple[float, ...], at: float) -> tuple[tuple[float, float], ...]:
    """The neighbours of a place on an axis, and what each counts."""
    index = bisect_left(values, at)
    if index == len(values) or at < values[0]:
        raise LengthError(f"an iteration with {axis} {at:g}; the table of costs has {values[0]:g} to {values[-1]:g}")
    if values[index] == at:
        return ((at, 1.0),)
    low, high = values[index - 1], values[index]
    part = (at - low) / (high - low)
    return (low, 1 - part), (high, part)


def read_table(path: Path, num_layers: int) -> TableCost:
    """Raises StoreError naming the line for what is no number, twice there, or missing of the grid."""
    try:
        text = io.StringIO(read_text(path, SMALL_BYTES), newline="")
        (_, names), *lines = [row for row in csv_rows(text, skipinitialspace=True) if row[1]] or [(0, [])]
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    wanted = (*AXES, "seconds")
    if missing := [name for name in wanted if name not in names]:
        raise StoreError(f"{path}: no column {missing[0]!r}; want {', '.join(wanted)}")
    if others := [name for name in names if name not in wanted]:
        raise StoreError(f"{path}: column {others[0]!r} would not be read; want {', '.join(wanted)} alone")
    points: dict[Point, float] = {}
    for number, cells in lines:
        where, line = f"{path}, line {number}", dict(zip_longest(names, cells))
        prefill, rows, context, seconds = (_number(where, name, line[name]) for name in wanted)
        if (prefill, rows, context) in points:
            raise StoreError(f"{where}: this point stands there twice")
        points[prefill, rows, context] = seconds
    if not points:
        raise StoreError(f"{path}: no line of a point")
    first, second, third = (tuple(sorted({point[place] for point in points})) for place in range(3))
    for point in product(first, second, third):
        # nothing runs there, so nobody has to say it
        if point not in points and point[:2] != (0.0, 0.0):
            raise StoreError(f"{path}: no point of {', '.join(f'{a} {v:g}' for a, v in zip(AXES, point, strict=True))}")
        points.setdefault(point, 0.0)
    return TableCost(num_layers=num_layers, axes=(first, second, third), seconds_at=points)


def _number(where: str, name: str, text: str | None) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise StoreError(f"{where}: {name} is {text!r}; want a finite number of at least 0")
    return value
