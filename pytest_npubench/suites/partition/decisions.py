"""What the solver decided for an operator, beside the best split that measuring all of them finds.

The campaign runs every split of every strategy in each round. The best is chosen in the even rounds and reported, as is
the decided one, from the odd ones: the least of many noisy medians is too small in the rounds that chose it.
"""

from __future__ import annotations

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.whole_rounds import whole_rounds
from pytest_npubench.errors import MeasurementError
from pytest_npubench.partition.matmul import Matmul
from pytest_npubench.partition.regret import MIN_ROUNDS, MeasuredSplits, Regret, regret_between
from pytest_npubench.partition.strategies import all_splits
from pytest_npubench.suites.partition.experiment import rounds_of
from pytest_npubench.suites.partition.plan import PartitionPlan
from pytest_npubench.suites.partition.points import DecisionPoint, SplitPoint


def decision_points(plan: PartitionPlan, matmul: Matmul) -> tuple[DecisionPoint | SplitPoint, ...]:
    """The solver's decision, and every split there is."""
    splits = all_splits(matmul, plan.options)
    return DecisionPoint(matmul=matmul), *(SplitPoint(matmul=matmul, split=split) for split in splits)


def regret(plan: PartitionPlan, matmul: Matmul, measured: Measured) -> Regret:
    """Raises MeasurementError where a split or the decision failed, or with too few rounds for two halves."""
    decision, *splits = points = decision_points(plan, matmul)
    measured = whole_rounds(measured, points)
    if len(measured.rounds) < MIN_ROUNDS:
        raise MeasurementError(f"{len(measured.rounds)} rounds; want {MIN_ROUNDS} or more, half to choose the best by")
    last = measured.rounds[-1]  # a resumed campaign decided anew
    every = MeasuredSplits(
        matmul=matmul,
        splits=tuple(point.split for point in splits if isinstance(point, SplitPoint)),
        samples_s=tuple(rounds_of(measured, point, "total_s") for point in splits if isinstance(point, SplitPoint)),
        relative_errors=(),
    )
    decided = every.splits[int(last[f"{decision.name}/place"][0])]
    return regret_between(decided, last[f"{decision.name}/predicted_s"][0], every)
