"""The solver's decision for one operator and length, on the real pair, against the best split there is.

Regret, prediction error and speed-up over the best single unit (HeteroInfer, section 4.4). A single shape is shown and
held against accepted sessions; solver_regret judges all of them together.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Axes, Case
from pytest_npubench.extensions.pairs.paired_rounds import time_metric
from pytest_npubench.extensions.pairs.partition.matmul import GPU, Matmul
from pytest_npubench.extensions.pairs.partition.regret import MIN_ROUNDS
from pytest_npubench.extensions.pairs.partition.solver import split_text
from pytest_npubench.extensions.pairs.suites.partition.decisions import decision_points, regret
from pytest_npubench.extensions.pairs.suites.partition.experiment import PartitionExperiment, total_s
from pytest_npubench.extensions.pairs.suites.partition.plan import PartitionPlan
from pytest_npubench.extensions.pairs.suites.partition.points import DecisionPoint, OperatorPoint
from pytest_npubench.verdict import judge_gates
from pytest_npubench.verdict.result import Judgement, Metric

REGRET_MARGIN = 0.10  # of one shape


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverDetail:
    """The decision and the best split of one operator. shape: rows, columns, tokens; seconds are medians of the
    reporting rounds; single_s, speedup: of the best single unit, None where none was measured. gpu_share: of the
    outputs that the decision gives to the GPU."""

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


class SolverKind(PartitionExperiment):
    name = "solver"

    def axes(self, plan: PartitionPlan) -> Iterable[Axes]:
        return tuple(
            (("operator", name), ("tokens", tokens)) for name in plan.operator_names for tokens in plan.size.lengths
        )

    def points(self, case: Case, plan: PartitionPlan) -> tuple[OperatorPoint, ...]:
        return decision_points(plan, _matmul(case, plan))

    def settled(self, case: Case, plan: PartitionPlan, measured: Measured) -> bool:
        return len(measured.rounds) >= MIN_ROUNDS

    def judge(self, case: Case, plan: PartitionPlan, measured: Measured) -> Judgement:
        matmul = _matmul(case, plan)
        outcome = regret(plan, matmul, measured)
        samples = total_s(measured, DecisionPoint(matmul=matmul))
        speedup = outcome.speedup or 1.0
        return Judgement(
            verdict=judge_gates(()),
            what=f"{outcome.decided.strategy}: {split_text(matmul, outcome.decided)}",
            metrics=(
                time_metric("decided_s", samples),
                Metric(name="speedup", unit="ratio", value=speedup, better="higher", gate="none"),
                Metric(name="regret", unit="", value=outcome.regret, gate="difference", margin=REGRET_MARGIN),
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
            ),
        )


def _matmul(case: Case, plan: PartitionPlan) -> Matmul:
    return plan.matmul(str(case.axis("operator")), int(case.axis("tokens")))


KIND = SolverKind()
