"""The solver's decision for one operator and length, on the real pair, against the best split there is.

Regret, prediction error and speed-up over the best single unit (HeteroInfer, section 4.4). A single shape is shown and
held against accepted sessions; solver_regret judges all of them together. One token is judged on cold weights, since a
decode step reads every weight of a model once; what warm ones would show stands beside.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Axes, Case
from pytest_npubench.extensions.pairs.paired_rounds import time_metric
from pytest_npubench.extensions.pairs.partition.matmul import GPU, Matmul
from pytest_npubench.extensions.pairs.partition.regret import MIN_ROUNDS
from pytest_npubench.extensions.pairs.partition.solver import split_text
from pytest_npubench.extensions.pairs.suites.partition.decisions import (
    decided_point,
    decision_points,
    regret,
    single_points,
    warm_points,
)
from pytest_npubench.extensions.pairs.suites.partition.experiment import PartitionExperiment, total_s, unit_metrics
from pytest_npubench.extensions.pairs.suites.partition.plan import PartitionPlan
from pytest_npubench.extensions.pairs.suites.partition.points import OperatorPoint
from pytest_npubench.verdict import judge_gates
from pytest_npubench.verdict.result import Judgement, Metric

REGRET_MARGIN = 0.10  # of one shape
COLD, WARM = "cold", "warm"


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverDetail:
    """The decision and the best split of one operator. shape: rows, columns, tokens; seconds are medians of the
    reporting rounds; single_s, speedup: of the best single unit, None where none was measured. gpu_share: of the
    outputs that the decision gives to the GPU. weights: "cold" (from memory) or "warm"; warm_*: with warm weights, None
    where the others are."""

    operator: str
    shape: tuple[int, int, int]
    strategy: str
    split: str
    best_strategy: str
    best_split: str
    decided_s: float
    best_s: float
    single_s: float | None
    regret: float
    speedup: float | None
    gpu_share: float
    weights: str
    warm_decided_s: float | None
    warm_speedup: float | None


class SolverKind(PartitionExperiment):
    name = "solver"

    def axes(self, plan: PartitionPlan) -> Iterable[Axes]:
        return tuple(
            (("operator", name), ("tokens", tokens)) for name in plan.operator_names for tokens in plan.size.lengths
        )

    def points(self, case: Case, plan: PartitionPlan) -> tuple[OperatorPoint, ...]:
        matmul = _matmul(case, plan)
        return *decision_points(plan, matmul), *warm_points(plan, matmul)

    def settled(self, case: Case, plan: PartitionPlan, measured: Measured) -> bool:
        return len(measured.rounds) >= MIN_ROUNDS

    def judge(self, case: Case, plan: PartitionPlan, measured: Measured) -> Judgement:
        matmul = _matmul(case, plan)
        outcome = regret(plan, matmul, measured)
        samples = total_s(measured, decided_point(matmul))
        gpu_s, npu_s = (total_s(measured, point) for point in single_points(plan, matmul))
        warm_s = [total_s(measured, point) for point in warm_points(plan, matmul)]
        warm_decided_s, *warm_singles_s = map(statistics.median, warm_s) if warm_s else (None,)
        weights, prefix = (COLD, f"{COLD}_") if matmul.is_decode else (WARM, "")
        speedup = outcome.speedup or 1.0
        return Judgement(
            verdict=judge_gates(()),
            what=f"{outcome.decided.strategy}: {split_text(matmul, outcome.decided)}, {weights} weights",
            metrics=(
                *unit_metrics(gpu_s, npu_s, prefix),
                time_metric(f"{prefix}decided_s", samples),
                *(time_metric("decided_s", times_s) for times_s in warm_s[:1]),
                Metric(name=f"{prefix}speedup", unit="ratio", value=speedup, better="higher", gate="none"),
                Metric(name=f"{prefix}regret", unit="", value=outcome.regret, gate="difference", margin=REGRET_MARGIN),
            ),
            measured_s=outcome.decided_s,
            predicted_s=outcome.predicted_s,
            error=outcome.prediction_error,
            detail=SolverDetail(
                operator=matmul.name,
                shape=(matmul.rows, matmul.cols, matmul.tokens),
                strategy=outcome.decided.strategy,
                split=split_text(matmul, outcome.decided),
                best_strategy=outcome.best.strategy,
                best_split=split_text(matmul, outcome.best),
                decided_s=outcome.decided_s,
                best_s=outcome.best_s,
                single_s=outcome.single_s,
                regret=outcome.regret,
                speedup=outcome.speedup,
                gpu_share=outcome.decided.share(GPU),
                weights=weights,
                warm_decided_s=warm_decided_s,
                warm_speedup=min(warm_singles_s) / warm_decided_s if warm_decided_s else None,
            ),
        )


def _matmul(case: Case, plan: PartitionPlan) -> Matmul:
    return plan.matmul(str(case.axis("operator")), int(case.axis("tokens")))


KIND = SolverKind()
