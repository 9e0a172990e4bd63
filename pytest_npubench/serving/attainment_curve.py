"""The rate at which attainment crosses a target, from runs at several rates: a monotone logistic fit near the crossing.

    logit p(r) = logit(target) + b (c - log r),    b >= 0

c is the log of the capacity, so its interval comes straight from the likelihood: for every c the best slope b (profile
likelihood; McCullagh & Nelder 1989, Generalized Linear Models, section 7.2), and all c are inside whose deviance is
above the least one by no more than phi t^2. Requests of one run wait in one queue, so a run is a cluster: its count
varies more than a binomial by a factor phi, Pearson's X^2 over its degrees of freedom, at least 1 (Wedderburn 1974,
10.1093/biomet/61.3.439), and t is Student's with those degrees.

An attainment curve is no logistic far from where it falls, so a run at distance d = log r - c counts with the weight
(1 + (d / h)^2)^-2, h = 0.25: a quarter where its rate is off by 28 %. Where the curve is shallow, h is 1 / b, at most
1. Weighted runs are worth (sum w)^2 / sum w^2 equal ones (Kish), which phi's degrees of freedom start from.

Worked example: target 0.9 and p = 0.95 at 10, 0.80 at 11 requests/s: logits 2.944 and 1.386 over log 1.1 = 0.0953,
slope b = 16.3; logit 0.9 = 2.197 is reached at log r = log 10 + (2.944 - 2.197) / 16.3, 10.47 requests/s.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pytest_npubench.stats.checks import FloatArray
from pytest_npubench.stats.error import student_quantile

COVERAGE = 0.95
BANDWIDTH, WIDEST = 0.25, 1.0  # in log rate
MAX_SLOPE = 200.0  # attainment then falls from 90 % to 10 % within 2.2 % of rate; runs cannot tell steeper ones apart
FLAT_SLOPE = 0.1  # attainment that falls by a point over a doubling of the rate crosses nothing
NUM_HALVINGS = 22
NUM_PLACES = 33
NUM_ZOOMS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityRun:
    """One run at a rate: requests that attained, of those that arrived, and the seconds it took to find out."""

    rate_per_s: float
    seed: int
    num_attained: int
    num_arrived: int
    spent_s: float = 0.0

    @property
    def attainment(self) -> float:
        return self.num_attained / self.num_arrived


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """Runs as columns, [R]: log rate, attained and arrived requests, weight."""

    log_rate: FloatArray
    attained: FloatArray
    arrived: FloatArray
    weight: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """log_capacity: where the fit crosses the target, clipped to the range of rates; slope: per log rate.

    dispersion is phi and freedom its degrees, below 1 where too few runs are near the crossing to know it. weight: [R],
    one a run.
    """

    log_capacity: float
    slope: float
    dispersion: float
    freedom: float
    weight: FloatArray

    @property
    def is_flat(self) -> bool:
        """Attainment does not fall with the rate."""
        return self.slope < FLAT_SLOPE

    def within(self, bounds: tuple[float, float]) -> bool:
        """Whether it crosses the target between the bounds, and not at one, where the best fit is when it does not."""
        edge = (bounds[1] - bounds[0]) / 1000
        return not self.is_flat and bounds[0] + edge < self.log_capacity < bounds[1] - edge


def fit_curve(runs: Sequence[CapacityRun], target: float, bounds: tuple[float, float]) -> Curve:
    """The curve through the runs; bounds are the logs of the lowest and highest rate that the capacity may have."""
    data = columns_of(runs, np.ones(len(runs)))
    for _ in range(2):  # the weights hang on the crossing, and it on them
        log_capacity, slope = crossing(data, target, bounds)
        width = min(max(BANDWIDTH, 1 / max(slope, FLAT_SLOPE)), WIDEST)
        data = columns_of(runs, (1 + ((data.log_rate - log_capacity) / width) ** 2) ** -2.0)
    log_capacity, slope = crossing(data, target, bounds)
    dispersion, freedom = _dispersion(data, target, log_capacity, slope)
    return Curve(log_capacity=log_capacity, slope=slope, dispersion=dispersion, freedom=freedom, weight=data.weight)


def interval_of(
    runs: Sequence[CapacityRun], curve: Curve, target: float, bounds: tuple[float, float]
) -> tuple[float | None, float | None] | None:
    """Interval of the log capacity; None on a side that the runs do not bound, or as a whole where phi is unknown."""
    if curve.freedom < 1:
        return None
    data = columns_of(runs, curve.weight)
    t = float(student_quantile(0.5 + COVERAGE / 2, curve.freedom))
    allowed = _deviance(data, target, np.array([curve.log_capacity]))[0][0] + curve.dispersion * t**2
    return (
        _end(data, target, curve.log_capacity, bounds[0], allowed),
        _end(data, target, curve.log_capacity, bounds[1], allowed),
    )


def crossing(data: Runs, target: float, bounds: tuple[float, float]) -> tuple[float, float]:
    """Log capacity within the bounds and slope of the best curve; the middle where several are as good."""
    low, high = bounds
    for _ in range(NUM_ZOOMS):
        places = np.linspace(low, high, NUM_PLACES)
        deviance, slopes = _deviance(data, target, places)
        (best,) = np.nonzero(deviance <= deviance.min() + 1e-6)
        middle = int(best[best.size // 2])
        low, high = places[max(int(best[0]) - 1, 0)], places[min(int(best[-1]) + 1, NUM_PLACES - 1)]
    return float(places[middle]), float(slopes[middle])


def columns_of(runs: Sequence[CapacityRun], weight: FloatArray) -> Runs:
    """Runs as columns, with a weight each."""
    return Runs(
        log_rate=np.log([run.rate_per_s for run in runs]),
        attained=np.array([run.num_attained for run in runs], dtype=np.float64),
        arrived=np.array([run.num_arrived for run in runs], dtype=np.float64),
        weight=weight,
    )


def logit(fraction: float) -> float:
    return math.log(fraction / (1 - fraction))


def _deviance(data: Runs, target: float, places: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Least deviance over slopes at each log capacity, but for a constant, and that slope; [P] for places [P].

    The likelihood is concave in b, so its derivative changes sign once: halving finds where.
    """
    distance = places[:, None] - data.log_rate  # [P, R]
    low, high = np.zeros(places.size), np.full(places.size, MAX_SLOPE)
    for _ in range(NUM_HALVINGS):
        slope = (low + high) / 2
        missing = data.attained - data.arrived * _attainment(target, slope, distance)
        rises = (missing * distance) @ data.weight > 0
        low, high = np.where(rises, slope, low), np.where(rises, high, slope)
    logits = logit(target) + low[:, None] * distance
    likelihood = (data.attained * logits - data.arrived * np.logaddexp(0.0, logits)) @ data.weight
    return -2 * likelihood, low


def _attainment(target: float, slope: FloatArray, distance: FloatArray) -> FloatArray:
    logits = logit(target) + slope[:, None] * distance
    return np.asarray(0.5 * (1 + np.tanh(logits / 2)))  # the logistic, without overflow


def _dispersion(data: Runs, target: float, log_capacity: float, slope: float) -> tuple[float, float]:
    """phi and its degrees of freedom, from the runs that can say something: one success and one failure expected."""
    fitted = _attainment(target, np.array([slope]), log_capacity - data.log_rate[None, :])[0]
    telling = np.minimum(fitted, 1 - fitted) * data.arrived >= 1
    expected, arrived = fitted[telling], data.arrived[telling]
    squares = (data.attained[telling] - arrived * expected) ** 2 / (arrived * expected * (1 - expected))
    weight = data.weight[telling]
    worth = float(weight.sum()) ** 2 / float(np.sum(weight**2)) if weight.size else 0.0
    freedom = worth - 2
    if freedom < 1:
        return 1.0, freedom
    return max(1.0, float(np.average(squares, weights=weight)) * worth / freedom), freedom


def _end(data: Runs, target: float, inside: float, bound: float, allowed: float) -> float | None:
    """Returns where the deviance passes what is allowed between a log capacity inside and a bound; None if it does not.

    Profile likelihoods of one parameter of a concave likelihood rise to either side, so there is one place.
    """
    if _deviance(data, target, np.array([bound]))[0][0] <= allowed:
        return None
    outside = bound
    for _ in range(3):
        places = np.linspace(inside, outside, NUM_PLACES)
        over = _deviance(data, target, places)[0] > allowed
        first = max(int(np.argmax(over)), 1)
        inside, outside = float(places[first - 1]), float(places[first])
    return outside
