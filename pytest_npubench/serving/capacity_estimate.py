"""Capacity from runs at several rates, and one capacity over another.

Worked example: runs at 10 and 11 requests/s of 1,000 requests each with 950 and 800 that attain: 10.47 requests/s, with
no interval, since two runs cannot tell how much runs differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pytest_npubench.errors import ConfigError, MeasurementError
from pytest_npubench.serving.attainment_curve import CapacityRun, Curve, columns_of, crossing, fit_curve, interval_of
from pytest_npubench.stats.checks import fraction, positive
from pytest_npubench.stats.error import student_quantile

Interval = tuple[float | None, float | None]

COVERAGE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """rate_per_s with its 95 % interval; where `reached` is False the rate is None and `why` says what is known.

    An end of the interval is None where the runs do not bound it: (None, low) where even the lowest rate fails, (high,
    None) where the highest passes. bounds_per_s are the rates between which the search looked.
    """

    rate_per_s: float | None
    interval: Interval | None
    runs: tuple[CapacityRun, ...]
    reached: bool
    why: str
    target: float
    bounds_per_s: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityRatio:
    """One capacity over another, with its 95 % interval; None, and `why`, where it is not known.

    num_pairs counts the runs that both searches made with the same rate and seed.
    """

    value: float | None
    interval: tuple[float, float] | None
    num_pairs: int
    why: str = ""


def estimate(runs: Sequence[CapacityRun], *, low: float, high: float, target: float = 0.9) -> Capacity:
    """The capacity between low and high requests/s that runs made by any plan show, such as alternating blocks.

    Raises ConfigError as `search`, MeasurementError where there are no runs.
    """
    bounds = checked_bounds(low, high, target)
    if not runs:
        raise MeasurementError("no runs; want some at rates on both sides of the capacity")
    curve = fit_curve(runs, target, bounds)
    rate, interval = None, None
    if not curve.within(bounds):
        why = f"attainment does not cross {target:.0%} between {low:g} and {high:g} requests/s in {len(runs)} runs"
    else:
        rate, ends = math.exp(curve.log_capacity), interval_of(runs, curve, target, bounds)
        interval = None if ends is None else (_exp(ends[0]), _exp(ends[1]))
        why = f"attainment crosses {target:.0%} in a curve through {len(runs)} runs"
        why += "; too few of them near the crossing for an interval" if interval is None else ""
    return Capacity(
        rate_per_s=rate,
        interval=interval,
        runs=tuple(runs),
        reached=rate is not None,
        why=why,
        target=target,
        bounds_per_s=(low, high),
    )


def capacity_ratio(a: Capacity, b: Capacity) -> CapacityRatio:
    """a's capacity over b's, with an interval that pairs runs of the same rate and seed.

    Each (rate, seed) is left out once, of both searches at once where both have it, and both curves are fitted again:
    the jackknife over clusters (Tukey; Miller 1974, 10.1093/biomet/61.1.1), which what a pair has in common drops out
    of. Raises ConfigError where the targets differ.
    """
    if a.target != b.target:
        raise ConfigError(f"capacities at {a.target} and {b.target} attainment; want the same target")
    keys = [(run.rate_per_s, run.seed) for run in a.runs]
    other_keys = [(run.rate_per_s, run.seed) for run in b.runs]
    num_pairs = len(set(keys) & set(other_keys))
    if a.rate_per_s is None or b.rate_per_s is None:
        which = " and ".join(part.why for part in (a, b) if part.rate_per_s is None)
        return CapacityRatio(value=None, interval=None, num_pairs=num_pairs, why=which)
    ratio = a.rate_per_s / b.rate_per_s
    curves = [fit_curve(part.runs, part.target, log_bounds(part.bounds_per_s)) for part in (a, b)]
    freedom = min(curve.freedom for curve in curves)
    if freedom < 1:
        why = "too few runs near a crossing to know how much runs differ"
        return CapacityRatio(value=ratio, interval=None, num_pairs=num_pairs, why=why)
    every = sorted(set(keys) | set(other_keys))
    moved = np.array([_moved(a, curves[0], key) - _moved(b, curves[1], key) for key in every])
    error = math.sqrt(float(np.sum((moved - moved.mean()) ** 2)) * (len(every) - 1) / len(every))
    half_width = float(student_quantile(0.5 + COVERAGE / 2, freedom)) * error
    return CapacityRatio(
        value=ratio, interval=(ratio * math.exp(-half_width), ratio * math.exp(half_width)), num_pairs=num_pairs
    )


def _moved(capacity: Capacity, curve: Curve, key: tuple[float, int]) -> float:
    """How far the log capacity moves without the run of that (rate, seed); 0 where there is none."""
    kept = [index for index, run in enumerate(capacity.runs) if (run.rate_per_s, run.seed) != key]
    if len(kept) == len(capacity.runs):
        return 0.0
    data = columns_of([capacity.runs[index] for index in kept], curve.weight[kept])
    return crossing(data, capacity.target, log_bounds(capacity.bounds_per_s))[0] - curve.log_capacity


def log_bounds(bounds: tuple[float, float]) -> tuple[float, float]:
    return math.log(bounds[0]), math.log(bounds[1])


def checked_bounds(low: float, high: float, target: float) -> tuple[float, float]:
    fraction("target", target)
    if positive("low", low) >= positive("high", high):
        raise ConfigError(f"low is {low} and high {high} requests/s; want low < high")
    return log_bounds((low, high))


def _exp(value: float | None) -> float | None:
    return None if value is None else math.exp(value)
