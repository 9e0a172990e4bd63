"""What the samples of an experiment say: medians, and ratios of arms taken round by round, with their intervals.

`Samples` are by point name and metric, one value a visit, the rounds of all points in one order. A ratio of two arms is
the median of the rounds' own ratios: what drifts between rounds cancels. Its interval lies between two of them
(stats.quantile_interval), None below six rounds.

Worked number: sharing 1.0, 1.2 s, per_chunk 2.0, 3.0 s: ratios 0.5 and 0.4, median 0.45.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pytest_npubench.errors import MeasurementError
from pytest_npubench.offload import chunk_graphs, factorial, replay, shadow
from pytest_npubench.offload.chunk_graphs import ChunkSettings
from pytest_npubench.offload.effects import CellRow, Effect, factorial_effects, factorial_table
from pytest_npubench.offload.replay import ReplaySettings
from pytest_npubench.offload.shadow import ShadowSettings
from pytest_npubench.offload.units import OffloadPoint
from pytest_npubench.stats.checks import require, row
from pytest_npubench.stats.quantile_interval import quantile_interval

Samples = Mapping[str, Mapping[str, Sequence[float]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A median of paired ratios and its 95 % interval; the ends are None below six rounds."""

    median: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmRow:
    """One arm under one setting: medians by metric. over: its time over that of the arm compared with, None for it."""

    arm: str
    setting: str
    medians: Mapping[str, float]
    over: Ratio | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowSummary:
    """over: fp32. crossover_fraction: the share of outlier channels from which one unit in mixed precision beats the
    pair; None where it never does. error_gain: by number of outliers, the max_min error over the shadow's."""

    rows: tuple[ArmRow, ...]
    crossover_fraction: float | None
    error_gain: Mapping[int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkSummary:
    """over: whole. saved_fraction: by prompt length, of the weight bytes, sharing against per_chunk, as counted in the
    graphs. shared_subgraphs: by prompt length, of one chunk's subgraphs those shared, and all."""

    rows: tuple[ArmRow, ...]
    saved_fraction: Mapping[int, float]
    shared_subgraphs: Mapping[int, tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySummary:
    """over: fifo under the same contention. contribution_over_fifo: by contention, above 1 where C is the slower."""

    rows: tuple[ArmRow, ...]
    contribution_over_fifo: Mapping[str, Ratio]


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorialSummary:
    """The eight rows, and the effects on time, on error and on the bytes of weights."""

    rows: tuple[CellRow, ...]
    time: tuple[Effect, ...]
    error: tuple[Effect, ...]
    weight_bytes: tuple[Effect, ...]


def summarize_shadow(settings: ShadowSettings, samples: Samples) -> ShadowSummary:
    """Raises MeasurementError for a point without samples, as all of these."""
    points = shadow.shadow_points(settings)
    rows = _rows(points, samples, against="fp32")
    counts = sorted(settings.num_outliers)
    medians = {(one.arm, one.setting): one.medians for one in rows}

    def column(arm: str, metric: str) -> list[float]:
        return [medians[arm, shadow.setting_name(count)][metric] for count in counts]

    gains = zip(counts, column("max_min", "relative_error"), column("parallel_fast", "relative_error"), strict=True)
    return ShadowSummary(
        rows=rows,
        crossover_fraction=shadow.crossover(
            [count / settings.num_channels for count in counts],
            column("parallel_fast", "total_s"),
            column("mixed", "total_s"),
        ),
        error_gain={count: coarse / fine for count, coarse, fine in gains if fine > 0},
    )


def summarize_chunks(settings: ChunkSettings, samples: Samples) -> ChunkSummary:
    rows = _rows(chunk_graphs.chunk_points(settings), samples, against="whole")
    medians = {(one.arm, one.setting): one.medians for one in rows}
    layouts = settings.layouts()

    def weight_bytes(arm: str, length: int) -> float:
        return medians[arm, f"{length} tokens"]["weight_bytes"]

    return ChunkSummary(
        rows=rows,
        saved_fraction={
            length: 1.0 - weight_bytes("sharing", length) / weight_bytes("per_chunk", length) for length in layouts
        },
        shared_subgraphs={
            length: (layout.shared_per_chunk, layout.subgraphs_per_chunk) for length, layout in layouts.items()
        },
    )


def summarize_replay(settings: ReplaySettings, samples: Samples) -> ReplaySummary:
    against = "fifo" if "fifo" in settings.policies else None
    rows = _rows(replay.replay_points(settings), samples, against=against)
    return ReplaySummary(
        rows=rows,
        contribution_over_fifo={
            one.setting: one.over for one in rows if one.arm == factorial.OUT_OF_ORDER and one.over is not None
        },
    )


def replay_rows(points: Sequence[OffloadPoint], samples: Samples) -> tuple[ArmRow, ...]:
    """Some points of a replay alone, each over FIFO under the same contention, which must be among them."""
    return _rows(points, samples, against="fifo")


def summarize_factorial(samples: Samples) -> FactorialSummary:
    cells = {factorial.cell_of(point.arm): _metrics(samples, point) for point in factorial.factorial_points()}

    def effects(metric: str) -> tuple[Effect, ...]:
        return factorial_effects({cell: metrics.get(metric, ()) for cell, metrics in cells.items()})

    return FactorialSummary(
        rows=factorial_table(cells),
        time=effects("total_s"),
        error=effects("relative_error"),
        weight_bytes=effects("weight_bytes"),
    )


def paired_ratio(name: str, samples_s: Sequence[float], others_s: Sequence[float]) -> Ratio:
    """Raises MeasurementError: none, not as many of each, one that is not finite or not above 0."""
    if len(samples_s) != len(others_s):
        raise MeasurementError(f"{name}: {len(samples_s)} and {len(others_s)} rounds; want as many of each")
    above, below = (row(name, values) for values in (samples_s, others_s))
    ratios = require(name, above, above > 0, "more than 0") / require(name, below, below > 0, "more than 0")
    interval = quantile_interval(ratios)
    low, high = (None, None) if interval is None else interval
    return Ratio(median=float(np.median(ratios)), low=low, high=high)


def _rows(points: Sequence[OffloadPoint], samples: Samples, *, against: str | None) -> tuple[ArmRow, ...]:
    return tuple(_row(point, samples, against) for point in points)


def _row(point: OffloadPoint, samples: Samples, against: str | None) -> ArmRow:
    metrics = _metrics(samples, point)
    over = None
    if against is not None and point.arm != against:
        other = OffloadPoint(experiment=point.experiment, arm=against, setting=point.setting)
        over = paired_ratio(point.name, metrics["total_s"], _metrics(samples, other)["total_s"])
    return ArmRow(
        arm=point.arm,
        setting=point.setting,
        medians={name: float(np.median(row(f"{point.name} {name}", values))) for name, values in metrics.items()},
        over=over,
    )


def _metrics(samples: Samples, point: OffloadPoint) -> Mapping[str, Sequence[float]]:
    if not samples.get(point.name):
        raise MeasurementError(f"no samples of {point.name}")
    return samples[point.name]
