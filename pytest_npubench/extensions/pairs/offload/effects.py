"""Main effects and interactions of a 2^k factorial, from rounds that visit every cell (Box, Hunter & Hunter, ch. 5).

In each round, with y the log of a cell's metric, the effect of a set F of factors is

    e(F) = 1/2^(k-1) sum over cells of  y(cell) * product over f in F of (+1 where f is on, -1 where off)

so e of one factor is the mean of y where it is on less the mean where it is off; exp(e) is a ratio, below 1 an
improvement. Cells of one round are compared with one another alone, what drifts between rounds cancels. The interval is
Student's over the rounds.

Worked number: y all 0 but for the four cells with A on, where it is log 0.8: e(A) = log 0.8, ratio 0.8, every other
effect ratio 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import combinations, product

import numpy as np

from pytest_npubench.errors import MeasurementError
from pytest_npubench.extensions.pairs.offload.factorial import CELLS, FACTORS, Cell, FactorialVisit, cell_name
from pytest_npubench.extensions.pairs.offload.units import Figures
from pytest_npubench.stats.checks import FloatArray, fraction, require, row
from pytest_npubench.stats.error import student_quantile


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """ratio: the metric with the factors over the metric without, all else averaged; for an interaction the ratio of
    such ratios. low, high: its interval, None below two rounds."""

    factors: tuple[str, ...]
    ratio: float
    low: float | None
    high: float | None
    num_rounds: int

    @property
    def name(self) -> str:
        return " x ".join(self.factors)


@dataclass(frozen=True, kw_only=True)  # no slots: a row has its fields of two classes
class _CellHead:
    """over_none: time over that of the cell with all off, median of the rounds' ratios."""

    cell: str
    over_none: float


@dataclass(frozen=True, kw_only=True)
class CellRow(FactorialVisit, _CellHead):
    """One cell: its figures are medians over the rounds."""


def factorial_effects(
    rounds: Mapping[tuple[bool, ...], Sequence[float]],
    *,
    factors: Sequence[str] = FACTORS,
    largest: int = 3,
    coverage: float = 0.95,
) -> tuple[Effect, ...]:
    """Returns the effects of single factors, then of pairs, and so on up to groups of the `largest` size; of three
    factors seven. rounds: of every cell the metric in each round, in order.

    Raises MeasurementError for a missing cell, cells of different numbers of rounds, none, a value not above 0 or not
    finite; ConfigError for a coverage outside (0, 1).
    """
    fraction("coverage", coverage)
    cells = tuple(product((False, True), repeat=len(factors)))
    logs = _logs(rounds, {cell: cell_name(cell, factors) for cell in cells})
    signs = np.array([[1 if on else -1 for on in cell] for cell in cells])
    groups = [group for size in range(1, largest + 1) for group in combinations(range(len(factors)), size)]
    names = (tuple(factors[index] for index in group) for group in groups)
    by_round = (signs[:, group].prod(axis=1) @ logs / (len(cells) / 2) for group in map(list, groups))
    return tuple(_effect(name, effects, coverage) for name, effects in zip(names, by_round, strict=True))


def factorial_table(visits: Mapping[Cell, Sequence[FactorialVisit]]) -> tuple[CellRow, ...]:
    """Eight rows in the order of CELLS; `visits` are the bench's figures by cell, one record a round."""
    times_s: dict[tuple[bool, ...], list[float]] = {
        cell: [visit.total_s for visit in own] for cell, own in visits.items()
    }
    logs = _logs(times_s, {cell: cell_name(cell) for cell in CELLS})
    return tuple(
        CellRow(
            cell=cell_name(cell),
            over_none=float(np.exp(np.median(logs[index] - logs[0]))),
            **medians(cell_name(cell), visits[cell]),
        )
        for index, cell in enumerate(CELLS)
    )


def medians(name: str, visits: Sequence[Figures]) -> dict[str, float]:
    """Returns the median of each figure over a point's visits, by name. Raises MeasurementError for one that is not
    finite."""
    names = [field.name for field in fields(visits[0])]
    return {
        figure: float(np.median(row(f"{name} {figure}", [getattr(visit, figure) for visit in visits])))
        for figure in names
    }


def _logs(rounds: Mapping[tuple[bool, ...], Sequence[float]], names: Mapping[tuple[bool, ...], str]) -> FloatArray:
    """[cells, rounds] in the order of `names`."""
    missing = [name for cell, name in names.items() if cell not in rounds]
    if missing:
        raise MeasurementError(f"no samples of {', '.join(missing)}; a factorial needs all {len(names)} cells")
    rows = [row(name, rounds[cell]) for cell, name in names.items()]
    lengths = sorted({len(values) for values in rows})
    if len(lengths) > 1:
        raise MeasurementError(f"cells have {' and '.join(map(str, lengths))} rounds; want as many of each")
    return np.log([require(name, v, v > 0, "more than 0") for name, v in zip(names.values(), rows, strict=True)])


def _effect(factors: tuple[str, ...], effects: FloatArray, coverage: float) -> Effect:
    """effects: one a round."""
    count, mean = effects.size, float(effects.mean())
    half = None
    if count > 1:
        half = float(student_quantile(0.5 + coverage / 2, count - 1.0) * effects.std(ddof=1) / math.sqrt(count))
    return Effect(
        factors=factors,
        ratio=math.exp(mean),
        low=None if half is None else math.exp(mean - half),
        high=None if half is None else math.exp(mean + half),
        num_rounds=count,
    )
