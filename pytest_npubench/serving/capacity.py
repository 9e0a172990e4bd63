"""Capacity: the highest rate at which 90 % of the requests attain their SLO (Layered Prefill, Fig. 3), by search.

Rates are tried from the lowest one, each twice the last, until attainment falls below the target. Every further run
goes near the crossing that a logistic curve through all runs has (attainment_curve): on it, and to either side of it,
where the curve's 97 % and 75 % are, since a slope is not known from runs at one rate.

Runs lie on a grid of rates, low x 1.01^k, and a run's seed is made of the search's seed, k and how often k was tried.
Two searches of one seed therefore share the runs of every rate that both try, with equal arrivals: pairs, which
`capacity_ratio` uses.

Worked example: low 0.5, capacity 1.47: runs at 0.5, 1.0, 2.0 (fails), then near 1.4, 1.47, 1.36, 1.58, ...
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from pytest_npubench.errors import ConfigError, MeasurementError
from pytest_npubench.serving.attainment_curve import CapacityRun, fit_curve, logit
from pytest_npubench.serving.capacity_estimate import (
    Capacity,
    CapacityRatio,
    capacity_ratio,
    checked_bounds,
    estimate,
    log_bounds,
)
from pytest_npubench.stats.checks import positive

__all__ = ["Capacity", "CapacityRatio", "CapacityRun", "capacity_ratio", "estimate", "search"]

Evaluate = Callable[[float, int], tuple[int, int, float]]

LOG_STEP = math.log(1.01)
STEPS_TO_DOUBLE = 70  # 1.01^70 = 2.007
NUM_TRIES_AT_ENDS = 3  # a single run may fail a rate, or pass it, by chance
SIDES = (None, 0.97, 0.75)  # on the crossing, below it, above it
FARTHEST = 0.25  # in log rate; beyond, a run hardly counts


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
    """The highest rate with an attainment of at least `target`, between low and high requests/s.

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
        step = self._bracket()
        if step is not None:
            return self._one_sided(step)
        while self._may_go_on():
            self._run(self._next_step())
        return estimate(self.runs, target=self.target, low=self.low, high=self.high)

    def _bracket(self) -> int | None:
        """Double the rate until attainment falls below the target. None once it has; else the step it ended at."""
        step = 0
        while self._may_go_on():
            passes = self._run(step)
            if step in (0, self.last_step):
                passes = self._passes_again(step)
            if not passes:
                return 0 if step == 0 else None
            if step == self.last_step:
                return step
            step = min(step + STEPS_TO_DOUBLE, self.last_step)
        return self.steps[-1]

    def _passes_again(self, step: int) -> bool:
        """At an end of the range, where one run would end the search: whether all runs there pass together."""
        ends_here = self._together(step) < self.target if step == 0 else self._together(step) >= self.target
        while ends_here and self.steps.count(step) < NUM_TRIES_AT_ENDS and self._may_go_on():
            self._run(step)
        return self._together(step) >= self.target

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

    def _one_sided(self, step: int) -> Capacity:
        """The lowest rate failed, the highest passed, or the budget ended on the way up."""
        rate, attained = self._rate(step), self._together(step)
        fails = attained < self.target
        side = "below" if fails else "above"
        ended = "" if fails or step == self.last_step else "; the budget ended before a rate that fails"
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
