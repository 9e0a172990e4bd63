"""What the visits of an experiment say: medians, and ratios of arms taken round by round, with their intervals.

`Visits` are by point name, one record a round, the rounds of all points in one order. A ratio of two arms is the median
of the rounds' own ratios: what drifts between rounds cancels. Its interval lies between two of them
(stats.percentile), None below six rounds.

Worked number: sharing 1.0, 1.2 s, per_chunk 2.0, 3.0 s: ratios 0.5 and 0.4, median 0.45.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from pytest_npubench.errors import MeasurementError
from pytest_npubench.extensions.pairs.offload import shadow
from pytest_npubench.extensions.pairs.offload.chunk_graphs import ChunkSettings, ChunkVisit
from pytest_npubench.extensions.pairs.offload.effects import (
    CellRow,
    Effect,
    factorial_effects,
    factorial_table,
    medians,
)
from pytest_npubench.extensions.pairs.offload.factorial import OUT_OF_ORDER, FactorialSettings, FactorialVisit, cell_of
from pytest_npubench.extensions.pairs.offload.replay import ReplayVisit
from pytest_npubench.extensions.pairs.offload.shadow import ShadowSettings, ShadowVisit
from pytest_npubench.extensions.pairs.offload.units import Figures, OffloadPoint
from pytest_npubench.stats.checks import require, row
from pytest_npubench.stats.percentile import quantile_interval

FiguresT = TypeVar("FiguresT", bound=Figures)
Visits = Mapping[str, Sequence[FiguresT]]
Interval = tuple[float | None, float | None]


@dataclass(frozen=True, kw_only=True)  # no slots, here and below: a row has its fields of three classes
class ArmRow:
    """One arm under one setting."""

    arm: str
    setting: str


@dataclass(frozen=True, kw_only=True)
class ComparedArm:
    """over: its time over that of the arm compared with, None for that arm itself. over_interval: at 95 %, its ends
    None below six rounds."""

    over: float | None
    over_interval: Interval | None


@dataclass(frozen=True, kw_only=True)
class ShadowRow(ComparedArm, ShadowVisit, ArmRow):
    """Figures are medians over the rounds, as in all of these."""


@dataclass(frozen=True, kw_only=True)
class ChunkRow(ComparedArm, ChunkVisit, ArmRow):
    pass


@dataclass(frozen=True, kw_only=True)
class ReplayRow(ComparedArm, ReplayVisit, ArmRow):
    pass


RowT = TypeVar("RowT", ShadowRow, ChunkRow, ReplayRow)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowSummary:
    """over: fp32. crossover_fraction: the share of outlier channels from which one unit in mixed precision beats the
    pair; None where it never does. error_gain: by number of outliers, the max_min error over the shadow's."""

    rows: tuple[ShadowRow, ...]
    crossover_fraction: float | None
    error_gain: Mapping[int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkSummary:
    """over: whole. saved_fraction: by prompt length, of the weight bytes, sharing against per_chunk, as counted in the
    graphs. shared_subgraphs: by prompt length, of one chunk's subgraphs those shared, and all."""

    rows: tuple[ChunkRow, ...]
    saved_fraction: Mapping[int, float]
    shared_subgraphs: Mapping[int, tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorialEffects:
    """With / without each set of techniques, on time, on error and on the bytes of weights."""

    time: tuple[Effect, ...]
    error: tuple[Effect, ...]
    weight_bytes: tuple[Effect, ...]


def summarize_shadow(settings: ShadowSettings, visits: Visits[ShadowVisit]) -> ShadowSummary:
    """Raises MeasurementError for a point without visits, as all of these."""
    rows = _rows(ShadowRow, settings.points(), visits, against="fp32")
    counts = sorted(settings.num_outliers)
    by_setting = {(one.arm, one.setting): one for one in rows}

    def column(arm: str) -> list[ShadowRow]:
        return [by_setting[arm, shadow.setting_name(count)] for count in counts]

    pair, mixed = column("parallel_fast"), column("mixed")
    return ShadowSummary(
        rows=rows,
        crossover_fraction=shadow.crossover(
            [count / settings.num_channels for count in counts],
            [one.total_s for one in pair],
            [one.total_s for one in mixed],
        ),
        error_gain={
            count: coarse.relative_error / fine.relative_error
            for count, coarse, fine in zip(counts, column("max_min"), pair, strict=True)
            if fine.relative_error > 0
        },
    )


def summarize_chunks(settings: ChunkSettings, visits: Visits[ChunkVisit]) -> ChunkSummary:
    rows = _rows(ChunkRow, settings.points(), visits, against="whole")
    weight_bytes = {(one.arm, one.setting): one.weight_bytes for one in rows}
    layouts = settings.layouts()
    return ChunkSummary(
        rows=rows,
        saved_fraction={
            length: 1.0 - weight_bytes["sharing", f"{length} tokens"] / weight_bytes["per_chunk", f"{length} tokens"]
            for length in layouts
        },
        shared_subgraphs={
            length: (layout.shared_per_chunk, layout.subgraphs_per_chunk) for length, layout in layouts.items()
        },
    )


def replay_rows(points: Sequence[OffloadPoint], visits: Visits[ReplayVisit]) -> tuple[ReplayRow, ...]:
    """Returns the rows over FIFO under the same contention, which must be among the points."""
    return _rows(ReplayRow, points, visits, against="fifo")


def contribution_over_fifo(rows: Sequence[ReplayRow]) -> dict[str, float]:
    """Returns the ratio by contention, above 1 where C is the slower."""
    return {one.setting: one.over for one in rows if one.arm == OUT_OF_ORDER and one.over is not None}


def summarize_factorial(visits: Visits[FactorialVisit]) -> tuple[tuple[CellRow, ...], FactorialEffects]:
    """Returns the eight rows, and the effects."""
    cells = {cell_of(point.arm): _of(point, visits) for point in FactorialSettings.points()}

    def effects(figure: Callable[[FactorialVisit], float]) -> tuple[Effect, ...]:
        return factorial_effects({cell: [figure(visit) for visit in own] for cell, own in cells.items()})

    return factorial_table(cells), FactorialEffects(
        time=effects(lambda visit: visit.total_s),
        error=effects(lambda visit: visit.relative_error),
        weight_bytes=effects(lambda visit: visit.weight_bytes),
    )


def paired_ratio(name: str, samples_s: Sequence[float], others_s: Sequence[float]) -> tuple[float, Interval]:
    """Returns the median of the ratios and its interval. Raises MeasurementError: none, not as many of each, one that
    is not finite or not above 0."""
    if len(samples_s) != len(others_s):
        raise MeasurementError(f"{name}: {len(samples_s)} and {len(others_s)} rounds; want as many of each")
    above, below = (row(name, values) for values in (samples_s, others_s))
    ratios = require(name, above, above > 0, "more than 0") / require(name, below, below > 0, "more than 0")
    return float(np.median(ratios)), quantile_interval(ratios) or (None, None)


def _rows(
    of: type[RowT], points: Sequence[OffloadPoint], visits: Mapping[str, Sequence[Figures]], *, against: str
) -> tuple[RowT, ...]:
    return tuple(_row(of, point, visits, against) for point in points)


def _row(of: type[RowT], point: OffloadPoint, visits: Mapping[str, Sequence[Figures]], against: str) -> RowT:
    here = _of(point, visits)
    over, interval = None, None
    if point.arm != against:
        other = _of(OffloadPoint(experiment=point.experiment, arm=against, setting=point.setting), visits)
        over, interval = paired_ratio(point.name, *([visit.total_s for visit in side] for side in (here, other)))
    figures: dict[str, Any] = {**medians(point.name, here), "over": over, "over_interval": interval}
    return of(arm=point.arm, setting=point.setting, **figures)


def _of(point: OffloadPoint, visits: Visits[FiguresT]) -> Sequence[FiguresT]:
    if not visits.get(point.name):
        raise MeasurementError(f"no visits of {point.name}")
    return visits[point.name]
