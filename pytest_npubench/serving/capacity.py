"""Capacity: the highest rate at which 90 % of the requests attain their SLO (Layered Prefill, Fig. 3), by search.

The range is halved in the log of the rate until a rate that passes and one that fails are close. Every further run goes
near the crossing that a logistic curve through all runs has (attainment_curve): on it, and to either side of it, where
the curve's 97 % and 75 % are, since a slope is not known from runs at one rate.

Runs lie on a grid of rates, low x 1.01^k, and a run's seed is made of the search's seed, k and how often k was tried.
Two searches of one seed therefore share the runs of every rate that both try, with equal arrivals: pairs, which
`capacity_ratio` uses.

Worked examples: 0.5 to 8, capacity 1.47: runs at 2 (fails), 1 and 1.41 (pass), then near 1.4, 1.47, 1.36, 1.58, ...
Runs at 10 and 11 requests/s of 1,000 requests each with 950 and 800 that attain: 10.47 requests/s, with no interval,
since two runs cannot tell how much runs differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pytest_npubench.errors import ConfigError, MeasurementError
from pytest_npubench.serving.attainment_curve import (
    CapacityRun,
    Curve,
    columns_of,
    crossing,
    fit_curve,
    interval_of,
    logit,
)
from pytest_npubench.stats.checks import fraction, positive
from pytest_npubench.stats.error import student_quantile

Evaluate = Callable[[float, int], tuple[int, int, float]]
LOG_STEP = math.log(1.01)
STEPS_APART = 40  # 1.01^40 = 1.49: rates so close are on either side of what the curve sees
NUM_TRIES_AT_ENDS = 3  # a single run may fail a rate, or pass it, by chance
SIDES = (None, 0.97, 0.75)  # on the crossing, below it, above it
FARTHEST = 0.25  # in log rate; beyond, a run hardly counts
Interval = tuple[float | None, float | None]
COVERAGE = 0.95


def search(
    evaluate: Evaluate,
    *,
    target: float = 0.9,
    low: float,
    high: float,
    budget_s: float | None = None,
    max_runs: int | None = None,
    seed: int = 0,
) -> Capacity:
    """Returns the highest rate with an attainment of at least `target`, between low and high requests/s.

    evaluate(rate_per_s, seed) returns (requests that attained, requests that arrived, seconds spent). The search ends
    before the run that would exceed the budget, going by what runs took so far; the first one always runs.

    Raises ConfigError: a target outside (0, 1), low and high not 0 < low < high, neither a budget nor max_runs, or one
    of them not above 0, a seed below 0; MeasurementError for counts that cannot be.
    """
    checked_bounds(low, high, target)
    if budget_s is None and max_runs is None:
        raise ConfigError("neither budget_s nor max_runs; want at least one, or the search would not end")
    limits = (
        math.inf if budget_s is None else positive("budget_s", budget_s),
        math.inf if max_runs is None else positive("max_runs", max_runs),
    )
    if seed < 0:
        raise ConfigError(f"seed is {seed}; want a whole number >= 0")
    return _CapacitySearch(evaluate, target, low, high, limits, seed).result()


class _CapacitySearch:
    """One search: its runs so far, on a grid of rates counted by step."""

    def __init__(
        self, evaluate: Evaluate, target: float, low: float, high: float, limits: tuple[float, float], seed: int
    ) -> None:
        self.evaluate, self.target, self.low, self.high, self.seed = evaluate, target, low, high, seed
        self.budget_s, self.max_runs = limits
        self.last_step = math.ceil(math.log(high / low) / LOG_STEP)
        self.runs: list[CapacityRun] = []
        self.steps: list[int] = []

    def result(self) -> Capacity:
        end = self._bracket()
        if end is not None:
            return self._one_sided(end)
        while self._may_go_on():
            self._run(self._next_step())
        return estimate(self.runs, target=self.target, low=self.low, high=self.high)

    def _bracket(self) -> int | None:
        """Halves the range until a rate that passes and one that fails are close. None where there are two such rates;
        else the end of the range beyond which the capacity lies."""
        passing, failing = 0, self.last_step
        while failing - passing > STEPS_APART and self._may_go_on():
            middle = (passing + failing) // 2
            passing, failing = (middle, failing) if self._run(middle) else (passing, middle)
        untried = [end for end, nearest in ((0, passing), (self.last_step, failing)) if end == nearest]
        return next(filter(self._lies_beyond, untried), None)

    def _lies_beyond(self, end: int) -> bool:
        """Whether all runs at an end of the range together say so; a single one may by chance. Where the budget is over
        before there is one, no run says otherwise."""
        while self.steps.count(end) < NUM_TRIES_AT_ENDS and self._may_go_on():
            self._run(end)
            if (self._together(end) >= self.target) is not (end == self.last_step):
                return False
        return True

    def _together(self, step: int) -> float:
        """Attainment of all runs at a step."""
        runs = [run for run, at in zip(self.runs, self.steps, strict=True) if at == step]
        return sum(run.num_attained for run in runs) / sum(run.num_arrived for run in runs)

    def _may_go_on(self) -> bool:
        if not self.runs:
            return True
        spent_s = sum(run.spent_s for run in self.runs)
        return len(self.runs) < self.max_runs and spent_s + spent_s / len(self.runs) <= self.budget_s

    def _run(self, step: int) -> bool:
        rate = self._rate(step)
        entropy = (self.seed, step, self.steps.count(step))
        seed = int(np.random.SeedSequence(entropy).generate_state(1)[0])
        num_attained, num_arrived, spent_s = self.evaluate(rate, seed)
        if num_arrived < 1 or not 0 <= num_attained <= num_arrived or not 0 <= spent_s < math.inf:
            raise MeasurementError(
                f"the run at {rate} requests/s with seed {seed} tells {num_attained} attained of {num_arrived} arrived "
                f"in {spent_s} s; want 0 <= attained <= arrived, at least 1 arrived, and finite seconds"
            )
        run = CapacityRun(
            rate_per_s=rate, seed=seed, num_attained=num_attained, num_arrived=num_arrived, spent_s=spent_s
        )
        self.runs.append(run)
        self.steps.append(step)
        return run.attainment >= self.target

    def _rate(self, step: int) -> float:
        return self.high if step >= self.last_step else self.low * math.exp(step * LOG_STEP)

    def _next_step(self) -> int:
        curve = fit_curve(self.runs, self.target, log_bounds((self.low, self.high)))
        side = SIDES[len(self.runs) % len(SIDES)]
        away = 0.0
        if side is not None:
            wanted = (logit(self.target) - logit(side)) / max(curve.slope, 1.0)
            away = math.copysign(min(max(abs(wanted), LOG_STEP), FARTHEST), wanted)
        step = round((curve.log_capacity + away - math.log(self.low)) / LOG_STEP)
        return min(max(step, 0), self.last_step)

    def _one_sided(self, end: int) -> Capacity:
        """Returns the lowest rate failed, the highest passed, or the budget ended on the way there."""
        step = max(self.steps) if end else min(self.steps)
        rate, attained = self._rate(step), self._together(step)
        fails = attained < self.target
        side = "below" if fails else "above"
        ended = "" if step == end else f"; the budget ended before a rate that {'passes' if fails else 'fails'}"
        why = f"attainment at {rate:g} requests/s is {attained:.1%} in {self.steps.count(step)} runs, {side}"
        return Capacity(
            rate_per_s=None,
            interval=(None, rate) if fails else (rate, None),
            runs=tuple(self.runs),
            reached=False,
            why=f"{why} {self.target:.0%}{ended}",
            target=self.target,
            bounds_per_s=(self.low, self.high),
        )


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
    """Returns the capacity between low and high requests/s that runs made by any plan show, such as alternating blocks.

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
