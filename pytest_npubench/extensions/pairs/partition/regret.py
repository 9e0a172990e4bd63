"""How good a decision is on the real pair: against the best split that measuring all of them finds.

    regret = T(decided) / T(best) - 1        prediction error = (predicted - T(decided)) / T(decided)

The best is the split of least median in one half of the rounds, and its time is the median over the other half: the
least of many noisy medians is too small when it is reported from the sample that chose it. So regret can come out below
0, and is given as it comes. Rounds are shuffled anew each, so that drift hits all splits alike.

Worked number: choosing rounds 1.0 and 1.1 ms for two splits, reporting rounds 1.2 and 1.1 ms; the best is the first,
1.2 ms, and a decision for the second has a regret of 1.1 / 1.2 - 1 = -8 %.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pytest_npubench.errors import MeasurementError, PartitionError
from pytest_npubench.extensions.pairs.partition.matmul import Matmul, Split

MIN_ROUNDS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSplits:
    """total seconds of each split, one a round, in the order of the rounds."""

    matmul: Matmul
    splits: tuple[Split, ...]
    samples_s: tuple[tuple[float, ...], ...]

    def choosing_s(self, split: Split) -> float:
        """Median over the rounds that choose: every other one."""
        return statistics.median(self._of(split)[::2])

    def reported_s(self, split: Split) -> float:
        """Median over the rounds in between, which choose nothing."""
        return statistics.median(self._of(split)[1::2])

    def best(self, splits: Sequence[Split] | None = None) -> Split:
        """Returns the fastest of these (None: of all) in the rounds that choose."""
        return min(self.splits if splits is None else splits, key=self.choosing_s)

    def _of(self, split: Split) -> tuple[float, ...]:
        if split not in self.splits:
            raise PartitionError(f"{self.matmul.name} x {self.matmul.tokens}: {split} was not measured")
        return self.samples_s[self.splits.index(split)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Regret:
    """Seconds are those of the reporting rounds. speedup: of the decision over the best single unit, which is None
    where no single unit was measured."""

    matmul: Matmul
    decided: Split
    best: Split
    decided_s: float
    best_s: float
    predicted_s: float
    single_s: float | None

    @property
    def regret(self) -> float:
        return self.decided_s / self.best_s - 1

    @property
    def prediction_error(self) -> float:
        return (self.predicted_s - self.decided_s) / self.decided_s

    @property
    def speedup(self) -> float | None:
        return None if self.single_s is None else self.single_s / self.decided_s


@dataclass(frozen=True, slots=True, kw_only=True)
class RegretSummary:
    """Over several operators and lengths; errors without their signs, speed-ups the largest."""

    num: int
    median_regret: float
    p90_regret: float
    median_error: float
    p90_error: float
    largest_speedup: float | None


def regret_between(decided: Split, predicted_s: float, measured: MeasuredSplits) -> Regret:
    single = [split for split in measured.splits if len(split.units) == 1 and not split.prepares_online]
    best = measured.best()
    return Regret(
        matmul=measured.matmul,
        decided=decided,
        best=best,
        decided_s=measured.reported_s(decided),
        best_s=measured.reported_s(best),
        predicted_s=predicted_s,
        single_s=measured.reported_s(measured.best(single)) if single else None,
    )


def summarize(regrets: Sequence[Regret]) -> RegretSummary:
    """Raises MeasurementError where there is nothing to sum up."""
    if not regrets:
        raise MeasurementError("no regrets to sum up; want one operator and length or more")
    signed = np.array([item.regret for item in regrets])
    errors = np.abs([item.prediction_error for item in regrets])
    speedups = [item.speedup for item in regrets if item.speedup is not None]
    return RegretSummary(
        num=len(regrets),
        median_regret=float(np.median(signed)),
        p90_regret=float(np.quantile(signed, 0.9)),
        median_error=float(np.median(errors)),
        p90_error=float(np.quantile(errors, 0.9)),
        largest_speedup=max(speedups, default=None),
    )
