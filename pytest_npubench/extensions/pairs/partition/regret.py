"""How good a decision is on the real pair: against the best split that measuring all of them finds.

    regret = T(decided) / T(best) - 1        prediction error = (predicted - T(decided)) / T(decided)

The best is the split of least median in one half of the rounds, and its time is the median over the other half: the
least of many noisy medians is too small when it is reported from the sample that chose it. So regret can come out below
0, and is given as it comes. Rounds are shuffled anew each, so that drift hits all splits alike.

Worked number: choosing rounds 1.0 and 1.1 ms for two splits, reporting rounds 1.2 and 1.1 ms; the best is the first,
1.2 ms, and a decision for the second has a regret of 1.1 / 1.2 - 1 = -8 %.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_npubench.errors import MeasurementError, PartitionError
from pytest_npubench.extensions.pairs.partition.matmul import GPU, Matmul, Split
from pytest_npubench.extensions.pairs.partition.solver import Decision
from pytest_npubench.extensions.pairs.partition.unit import UnitPair, visit

MAX_RELATIVE_ERROR = 1e-4  # of outputs in float32 against a reference, over the largest output
MIN_ROUNDS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSplits:
    """total seconds of each split, one a round, in the order of the rounds. relative_errors: of each split's output
    against the reference, the largest difference over the largest output."""

    matmul: Matmul
    splits: tuple[Split, ...]
    samples_s: tuple[tuple[float, ...], ...]
    relative_errors: tuple[float, ...]

    def choosing_s(self, split: Split) -> float:
        """Median over the rounds that choose: every other one."""
        return statistics.median(self._of(split)[::2])

    def reported_s(self, split: Split) -> float:
        """Median over the rounds in between, which choose nothing."""
        return statistics.median(self._of(split)[1::2])

    def best(self, splits: Sequence[Split] | None = None) -> Split:
        """The fastest of these (None: of all) in the rounds that choose."""
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


def exhaustive(
    pair: UnitPair,
    matmul: Matmul,
    splits: Sequence[Split],
    *,
    rounds: int = 10,
    seed: int = 0,
    mechanism: str | None = None,
) -> MeasuredSplits:
    """Load and run all of them, shuffled anew in each round, and check every output.

    The reference is float64 from the pair's operands where it shows them, else the first split that is the GPU's
    alone. Raises PartitionError below 4 rounds, on no split, and where there is no reference; MeasurementError where
    an output is wrong.
    """
    if rounds < MIN_ROUNDS or not splits:
        raise PartitionError(f"{rounds} rounds of {len(splits)} splits; want {MIN_ROUNDS} or more of at least one")
    wanted = tuple(dict.fromkeys(splits))
    pair.load(matmul, wanted)
    errors = _output_errors(pair, matmul, wanted, mechanism)
    samples_s: dict[Split, list[float]] = {split: [] for split in wanted}
    order, shuffler = list(wanted), random.Random(seed)
    for _ in range(rounds):
        shuffler.shuffle(order)
        for split in order:
            samples_s[split].append(visit(pair, matmul, split, mechanism).total_s)
    return MeasuredSplits(
        matmul=matmul,
        splits=wanted,
        samples_s=tuple(tuple(samples_s[split]) for split in wanted),
        relative_errors=errors,
    )


def regret_of(decision: Decision, measured: MeasuredSplits) -> Regret:
    """The regret of a decision. Raises PartitionError where the decided split is not among the measured ones."""
    return regret_between(decision.split, decision.predicted_s, measured)


def regret_between(decided: Split, predicted_s: float, measured: MeasuredSplits) -> Regret:
    """The regret of a decided split with the seconds predicted for it."""
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


def _output_errors(pair: UnitPair, matmul: Matmul, splits: Sequence[Split], mechanism: str | None) -> tuple[float, ...]:
    reference = _reference(pair, matmul, splits, mechanism)
    scale = float(np.abs(reference).max())
    errors = []
    for split in splits:
        pair.run(matmul, split, mechanism=mechanism)
        error = float(np.abs(pair.output(matmul) - reference).max()) / scale
        if not error <= MAX_RELATIVE_ERROR:
            raise MeasurementError(
                f"{matmul.name} x {matmul.tokens}: {split} is wrong by {error:.2g} of the largest output;"
                f" want at most {MAX_RELATIVE_ERROR:g}"
            )
        errors.append(error)
    return tuple(errors)


def _reference(
    pair: UnitPair, matmul: Matmul, splits: Sequence[Split], mechanism: str | None
) -> NDArray[np.floating[Any]]:
    """[rows, tokens]."""
    operands = getattr(pair, "operands", None)
    if operands is not None:
        weight, activation = operands(matmul)
        product: NDArray[np.float64] = weight.astype(np.float64) @ activation.astype(np.float64)
        return product
    alone = next((split for split in splits if split.units == (GPU,)), None)
    if alone is None:
        raise PartitionError(f"{matmul.name}: no split of the GPU alone to hold the outputs against")
    pair.run(matmul, alone, mechanism=mechanism)
    return pair.output(matmul)
