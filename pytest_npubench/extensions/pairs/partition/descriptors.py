"""Numbers that say what a unit is like, fitted to samples: HeteroInfer's characteristics GPU-1 to Memory-1 as figures.

Where the samples do not show a characteristic, the answer is None, "none found": a straight line has no stages. A fit
with one more parameter is believed where the Bayesian information criterion, n ln(residuals / n) + k ln n, is better by
at least 10 (Kass & Raftery 1995, 10.1080/01621459.1995.10476572: "very strong").
Residuals are relative to the measured time, as noise is.

Worked number: 32 and 33 rows in 100 and 200 us, 64 in 200, 65 in 300: stages 32 wide, 100 us each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pytest_npubench.core.measurement import check_samples
from pytest_npubench.errors import MeasurementError
from pytest_npubench.stats.percentile import quantile_interval

Array = npt.NDArray[np.float64]

DECISIVE = 10.0
FALSE_SLOPES = 1e-3  # share of flat samples in which a slope is found


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearPastThreshold:
    """GPU-1: flat at floor_s up to `threshold`, then slope_s for each further one. threshold None: none found, and
    floor_s is where the straight line meets 0."""

    threshold: float | None
    floor_s: float
    slope_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFit:
    """NPU-1: the time goes up every `width`; step_s is by how much. width None: none found, step_s for each one."""

    width: int | None
    step_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioFit:
    """A ratio of times or rates with the interval of its median at 95 %; None where there are fewer than 6 rounds."""

    ratio: float
    interval: tuple[float, float] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncCost:
    """Seconds of a round trip. p99_s None: fewer than 100 trips."""

    mechanism: str
    p50_s: float
    p99_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphGeneration:
    """Making a graph by its size: base_s plus slope_s for each element. slope_s None: it does not grow measurably."""

    base_s: float
    slope_s: float | None


def fit_linear_past_threshold(sizes: Sequence[float], seconds: Sequence[float]) -> LinearPastThreshold:
    """GPU-1 from one time a size (tokens or FLOP). Raises MeasurementError below 5 sizes, or for what is not finite."""
    x, y = _checked(sizes, seconds, at_least=5)
    straight = _fit(x, y)
    fits = [(_fit(np.maximum(x - threshold, 0), y), threshold) for threshold in _between(x)]
    bent, threshold = min(fits, key=lambda item: item[0].residual)
    if bent.slope <= 0 or not _believed(straight, bent, len(x)):
        return LinearPastThreshold(threshold=None, floor_s=straight.intercept, slope_s=straight.slope)
    return LinearPastThreshold(threshold=threshold, floor_s=bent.intercept, slope_s=bent.slope)


def fit_stage(sizes: Sequence[int], seconds: Sequence[float]) -> StageFit:
    """NPU-1 from one time a size: the width w whose ceil(size / w) explains the times best, against a straight line.

    Widths from 2 to half of the range are tried, so the sizes must reach over two stages at least, and lie closer than
    a stage. Raises MeasurementError below 6 sizes, or for what is not finite.
    """
    x, y = _checked(sizes, seconds, at_least=6)
    straight = _fit(x, y)
    fits = [(_fit(np.ceil(x / width), y), width) for width in range(2, int(x.max() - x.min()) // 2 + 1)]
    stepped, width = min(fits, key=lambda item: item[0].residual, default=(straight, 1))
    if stepped.slope <= 0 or not _believed(straight, stepped, len(x)):
        return StageFit(width=None, step_s=straight.slope)
    return StageFit(width=width, step_s=stepped.slope)


def fit_ratio(slower_s: Sequence[float], faster_s: Sequence[float]) -> RatioFit:
    """NPU-2 and NPU-3: the times of two orders or two shapes, measured in the same rounds, and their ratio round by
    round. Raises MeasurementError for samples of different number, none, or one that is not above 0."""
    if len(slower_s) != len(faster_s):
        raise MeasurementError(f"{len(slower_s)} and {len(faster_s)} samples; want one of each a round")
    _positive("slower_s", slower_s)
    _positive("faster_s", faster_s)
    return _ratio([slow / fast for slow, fast in zip(slower_s, faster_s, strict=True)])


def fit_bandwidth_gain(
    alone_per_s: Mapping[str, Sequence[float]], together_per_s: Mapping[str, Sequence[float]]
) -> RatioFit:
    """Memory-1: bytes a second of all units together over those of the best unit alone, round by round; by unit.

    Raises MeasurementError where the units or their numbers of rounds differ, or a rate is not above 0.
    """
    numbers = {len(rates) for rates in (*alone_per_s.values(), *together_per_s.values())}
    if alone_per_s.keys() != together_per_s.keys() or len(numbers) != 1:
        raise MeasurementError("bandwidths alone and together are not of the same units and rounds")
    for name, rates in (*alone_per_s.items(), *together_per_s.items()):
        _positive(name, rates)
    both = [sum(rates) for rates in zip(*together_per_s.values(), strict=True)]
    best = max(alone_per_s.values(), key=lambda rates: float(np.median(rates)))
    return _ratio([total / single for total, single in zip(both, best, strict=True)])


def fit_sync(mechanism: str, trips_s: Sequence[float]) -> SyncCost:
    """GPU-2: median and 99th percentile. Raises MeasurementError for no trips or one that is not finite."""
    check_samples(f"round trips by {mechanism}", trips_s)
    p99_s = float(np.quantile(trips_s, 0.99)) if len(trips_s) >= 100 else None
    return SyncCost(mechanism=mechanism, p50_s=float(np.median(trips_s)), p99_s=p99_s)


def fit_graph_generation(elements: Sequence[float], compile_s: Sequence[float]) -> GraphGeneration:
    """Fig. 8: the slope over the size, where Student's t finds it above 0 at one false alarm in 1000.

    Raises MeasurementError below 4 graphs, or for what is not finite.
    """
    from scipy import special  # a quarter of a second that collecting cases need not pay

    x, y = _checked(elements, compile_s, at_least=4)
    centred = x - x.mean()
    slope = float(centred @ y / (centred @ centred))
    residual = y - y.mean() - slope * centred
    error = math.sqrt(float(residual @ residual) / (len(x) - 2) / float(centred @ centred))
    if slope <= error * float(special.stdtrit(len(x) - 2, 1 - FALSE_SLOPES)):
        return GraphGeneration(base_s=float(np.median(y)), slope_s=None)
    return GraphGeneration(base_s=float(y.mean() - slope * x.mean()), slope_s=slope)


class _FittedLine(NamedTuple):
    """y = intercept + slope x, and the sum of the squared relative residuals."""

    intercept: float
    slope: float
    residual: float


def _fit(x: Array, y: Array) -> _FittedLine:
    design = np.column_stack([np.ones_like(x), x]) / y[:, None]
    (intercept, slope), *_ = np.linalg.lstsq(design, np.ones_like(y), rcond=None)
    residual = 1 - design @ np.array([intercept, slope])
    return _FittedLine(float(intercept), float(slope), float(residual @ residual))


def _believed(straight: _FittedLine, other: _FittedLine, num: int) -> bool:
    """The information criterion with one parameter more; residuals below rounding count as rounding."""
    tiny = num * 1e-20
    return num * math.log((straight.residual + tiny) / (other.residual + tiny)) - math.log(num) >= DECISIVE


def _between(x: Array) -> list[float]:
    """Thresholds to try: 40 between the second size and the last but one, so that both sides have two points."""
    ordered = np.unique(x)
    return [float(threshold) for threshold in np.linspace(ordered[1], ordered[-2], 40)]


def _ratio(ratios: Sequence[float]) -> RatioFit:
    return RatioFit(ratio=float(np.median(ratios)), interval=quantile_interval(ratios))


def _checked(sizes: Sequence[float], seconds: Sequence[float], *, at_least: int) -> tuple[Array, Array]:
    if len(sizes) != len(seconds) or len(set(sizes)) < at_least:
        raise MeasurementError(
            f"{len(set(sizes))} different sizes and {len(seconds)} times; want a time for each of {at_least} or more"
        )
    _positive("sizes", sizes)
    _positive("seconds", seconds)
    return np.asarray(sizes, dtype=np.float64), np.asarray(seconds, dtype=np.float64)


def _positive(name: str, values: Sequence[float]) -> None:
    check_samples(name, values)
    if min(values) <= 0:
        raise MeasurementError(f"{name}: {min(values)!r}; want numbers above 0")
