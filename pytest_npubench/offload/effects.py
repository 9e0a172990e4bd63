"""Main effects and interactions of a 2^3 factorial, from rounds that visit every cell (Box, Hunter & Hunter, ch. 5).

In each round, with y the log of a cell's metric, the effect of a set F of factors is

    e(F) = 1/4 sum over cells of  y(cell) * product over f in F of (+1 where f is on, -1 where off)

so e of one factor is the mean of y where it is on less the mean where it is off; exp(e) is a ratio, below 1 an
improvement. Cells of one round are compared with one another alone, what drifts between rounds cancels. The interval is
Student's over the rounds.

Worked number: y all 0 but for the four cells with A on, where it is log 0.8: e(A) = log 0.8, ratio 0.8, every other
effect ratio 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from pytest_npubench.errors import MeasurementError
from pytest_npubench.offload.factorial import CELLS, FACTORS, Cell, cell_name
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRow:
    """One row of the table: medians over the rounds by metric. over_none: time over that of the cell with all off,
    median of the rounds' ratios."""

    cell: str
    medians: Mapping[str, float]
    over_none: float


def factorial_effects(rounds: Mapping[Cell, Sequence[float]], *, coverage: float = 0.95) -> tuple[Effect, ...]:
    """Seven effects: three factors, three pairs, all three. rounds: of every cell the metric in each round, in order.

    Raises MeasurementError for a missing cell, cells of different numbers of rounds, none, a value not above 0 or not
    finite; ConfigError for a coverage outside (0, 1).
    """
    fraction("coverage", coverage)
    logs = _logs(rounds)
    groups = [group for size in (1, 2, 3) for group in combinations(range(len(FACTORS)), size)]
    return tuple(_effect(group, logs, coverage) for group in groups)


def factorial_table(samples: Mapping[Cell, Mapping[str, Sequence[float]]]) -> tuple[CellRow, ...]:
    """Eight rows in the order of CELLS; `samples` are the bench's metrics by cell and name, one value a round."""
    times = {cell: metrics.get("total_s", ()) for cell, metrics in samples.items()}
    logs = _logs(times)
    return tuple(
        CellRow(
            cell=cell_name(cell),
            medians={name: float(np.median(row(name, values))) for name, values in samples[cell].items()},
            over_none=float(np.exp(np.median(logs[index] - logs[0]))),
        )
        for index, cell in enumerate(CELLS)
    )


def _logs(rounds: Mapping[Cell, Sequence[float]]) -> FloatArray:
    """[8, rounds] in the order of CELLS."""
    missing = [cell_name(cell) for cell in CELLS if cell not in rounds]
    if missing:
        raise MeasurementError(f"no samples of {', '.join(missing)}; a factorial needs all eight cells")
    rows = [row(cell_name(cell), rounds[cell]) for cell in CELLS]
    lengths = sorted({len(values) for values in rows})
    if len(lengths) > 1:
        raise MeasurementError(f"cells have {' and '.join(map(str, lengths))} rounds; want as many of each")
    return np.log([require(cell_name(cell), v, v > 0, "more than 0") for cell, v in zip(CELLS, rows, strict=True)])


def _effect(group: tuple[int, ...], logs: FloatArray, coverage: float) -> Effect:
    signs = np.array([math.prod(1 if cell[index] else -1 for index in group) for cell in CELLS])
    effects = signs @ logs / 4
    count, mean = effects.size, float(effects.mean())
    half = None
    if count > 1:
        half = float(student_quantile(0.5 + coverage / 2, count - 1.0) * effects.std(ddof=1) / math.sqrt(count))
    return Effect(
        factors=tuple(FACTORS[index] for index in group),
        ratio=math.exp(mean),
        low=None if half is None else math.exp(mean - half),
        high=None if half is None else math.exp(mean + half),
        num_rounds=count,
    )
