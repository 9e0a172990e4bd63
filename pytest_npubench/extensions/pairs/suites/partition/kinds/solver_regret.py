"""All decisions of the solver together: their regret against the best splits measured, at the median and at 90 %.

Over the operators and lengths of the profile, one token on cold weights. The case fails above MEDIAN or P90.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Case
from pytest_npubench.extensions.pairs.partition.matmul import Matmul
from pytest_npubench.extensions.pairs.partition.regret import MIN_ROUNDS, summarize
from pytest_npubench.extensions.pairs.suites.partition.decisions import decision_points, regret
from pytest_npubench.extensions.pairs.suites.partition.experiment import PartitionExperiment
from pytest_npubench.extensions.pairs.suites.partition.plan import PartitionPlan
from pytest_npubench.extensions.pairs.suites.partition.points import OperatorPoint
from pytest_npubench.verdict import Gate, judge_gates
from pytest_npubench.verdict.result import Judgement, Metric

MEDIAN, P90 = 0.05, 0.15
MARGIN, P90_MARGIN = 0.02, 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverRegretDetail:
    """Over all shapes; largest_speedup None where no single unit was measured. shapes: operator, tokens, regret and
    speed-up of each."""

    num_shapes: int
    median_regret: float
    p90_regret: float
    median_prediction_error: float
    p90_prediction_error: float
    largest_speedup: float | None
    shapes: tuple[tuple[str, int, float, float | None], ...]


class SolverRegretKind(PartitionExperiment):
    name = "solver_regret"

    def points(self, case: Case, plan: PartitionPlan) -> tuple[OperatorPoint, ...]:
        return tuple(point for matmul in _matmuls(plan) for point in decision_points(plan, matmul))

    def settled(self, case: Case, plan: PartitionPlan, measured: Measured) -> bool:
        return len(measured.rounds) >= MIN_ROUNDS

    def judge(self, case: Case, plan: PartitionPlan, measured: Measured) -> Judgement:
        regrets = [regret(plan, matmul, measured) for matmul in _matmuls(plan)]
        summary = summarize(regrets)
        gates = (
            Gate(metric="median regret", value=summary.median_regret, limit=MEDIAN),
            Gate(metric="90th percentile of regret", value=summary.p90_regret, limit=P90),
        )
        return Judgement(
            verdict=judge_gates(gates),
            what=f"regret over {summary.num} shapes",
            metrics=(
                Metric(name="median_regret", unit="", value=summary.median_regret, gate="difference", margin=MARGIN),
                Metric(name="p90_regret", unit="", value=summary.p90_regret, gate="difference", margin=P90_MARGIN),
                Metric(
                    name="median_prediction_error",
                    unit="",
                    value=summary.median_error,
                    gate="difference",
                    margin=MARGIN,
                ),
            ),
            detail=SolverRegretDetail(
                num_shapes=summary.num,
                median_regret=summary.median_regret,
                p90_regret=summary.p90_regret,
                median_prediction_error=summary.median_error,
                p90_prediction_error=summary.p90_error,
                largest_speedup=summary.largest_speedup,
                shapes=tuple((one.matmul.name, one.matmul.tokens, one.regret, one.speedup) for one in regrets),
            ),
        )


def _matmuls(plan: PartitionPlan) -> list[Matmul]:
    return [plan.matmul(name, tokens) for name in plan.operator_names for tokens in plan.size.lengths]


KIND = SolverRegretKind()
