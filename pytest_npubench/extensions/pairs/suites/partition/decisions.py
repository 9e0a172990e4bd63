"""What the solver decided for an operator, beside the best split that measuring all of them finds.

The campaign runs every split of every strategy in each round, those of one token on cold weights. The best is chosen in
the even rounds and reported, as is the decided one, from the odd ones: the least of many noisy medians is too small in
the rounds that chose it.
"""

from __future__ import annotations

from dataclasses import replace

from pytest_npubench.campaign.points import Measured
from pytest_npubench.errors import MeasurementError
from pytest_npubench.extensions.pairs.paired_rounds import whole_rounds
from pytest_npubench.extensions.pairs.partition.matmul import Matmul
from pytest_npubench.extensions.pairs.partition.regret import MIN_ROUNDS, MeasuredSplits, Regret, regret_between
from pytest_npubench.extensions.pairs.partition.strategies import all_splits
from pytest_npubench.extensions.pairs.suites.partition.experiment import total_s
from pytest_npubench.extensions.pairs.suites.partition.plan import PartitionPlan
from pytest_npubench.extensions.pairs.suites.partition.points import (
    DecisionPoint,
    DecisionVisit,
    OperatorPoint,
    SplitPoint,
)


def decision_points(plan: PartitionPlan, matmul: Matmul) -> tuple[OperatorPoint, ...]:
    """The solver's decision, and every split there is."""
    return decided_point(matmul), *_split_points(plan, matmul)


def decided_point(matmul: Matmul) -> DecisionPoint:
    """Returns the decision as it is judged."""
    return DecisionPoint(matmul=matmul, is_cold=matmul.is_decode)


def warm_points(plan: PartitionPlan, matmul: Matmul) -> tuple[OperatorPoint, ...]:
    """What is shown beside a decision that is judged on cold weights: the same and each unit alone, on warm ones. None
    where it is judged on warm ones."""
    if not matmul.is_decode:
        return ()
    singles = (replace(point, is_cold=False) for point in single_points(plan, matmul))
    return DecisionPoint(matmul=matmul), *singles


def single_points(plan: PartitionPlan, matmul: Matmul) -> tuple[SplitPoint, SplitPoint]:
    """Returns the whole operator on the GPU, and on the NPU, as it is judged."""
    gpu, npu = (
        SplitPoint(matmul=matmul, split=split, is_cold=matmul.is_decode)
        for split in all_splits(matmul, plan.options, ("gpu_only", "npu_only"))
    )
    return gpu, npu


def regret(plan: PartitionPlan, matmul: Matmul, measured: Measured) -> Regret:
    """Raises MeasurementError where a split or the decision failed, or with too few rounds for two halves."""
    decision, splits = decided_point(matmul), _split_points(plan, matmul)
    measured = whole_rounds(measured, (decision, *splits))
    if len(measured.rounds) < MIN_ROUNDS:
        raise MeasurementError(f"{len(measured.rounds)} rounds; want {MIN_ROUNDS} or more, half to choose the best by")
    every = MeasuredSplits(
        matmul=matmul,
        splits=tuple(point.split for point in splits),
        samples_s=tuple(total_s(measured, point) for point in splits),
    )
    decided = measured.visits(decision.name, DecisionVisit)[-1][0]  # the last: a resumed campaign decided anew
    return regret_between(every.splits[decided.split_index], decided.predicted_s, every)


def _split_points(plan: PartitionPlan, matmul: Matmul) -> tuple[SplitPoint, ...]:
    splits = all_splits(matmul, plan.options)
    return tuple(SplitPoint(matmul=matmul, split=split, is_cold=matmul.is_decode) for split in splits)
