"""What a graph for a new shape costs on the static unit (HeteroInfer, Fig. 8).

Cold compiles of one operator at growing token counts, a fresh one in every round. Fig. 8 draws the growth for one
operator and prints no number. The numbers are those of Fig. 14 (section 5.3.2): 408 ms at 135 tokens and 2,050 ms at
1,000, for all graphs of Llama-8B, typically 4. XLA's compile time on a CPU hardly grows with the shape, and then the
slope is reported as none.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Case
from pytest_npubench.extensions.pairs.partition.descriptors import fit_graph_generation
from pytest_npubench.extensions.pairs.partition.matmul import NPU, Split, alone
from pytest_npubench.extensions.pairs.suites.partition.experiment import OperatorExperiment, check_columns, rounds_of
from pytest_npubench.extensions.pairs.suites.partition.plan import PartitionPlan
from pytest_npubench.extensions.pairs.suites.partition.points import SplitPoint
from pytest_npubench.verdict import judge_gates
from pytest_npubench.verdict.result import Judgement, Metric

TOKENS = (17, 67, 135, 261)  # no standard sizes: nothing of another case compiled them
COMPILE_MARGIN = 0.10  # compilers search by the clock


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphGenerationDetail:
    """Medians by number of tokens. slope_s_per_output None: no growth with the size of the output was found."""

    tokens: tuple[int, ...]
    seconds: tuple[float, ...]
    base_s: float
    slope_s_per_output: float | None

    def __post_init__(self) -> None:
        """Raises ValueError for columns that are empty or of several lengths."""
        check_columns(self.tokens, self.seconds)


class GraphGenerationKind(OperatorExperiment):
    name = "graph_generation"

    def points(self, case: Case, plan: PartitionPlan) -> tuple[SplitPoint, ...]:
        return tuple(
            SplitPoint(
                matmul=matmul,
                split=Split(strategy="online_prepare", parts=alone(matmul, NPU).parts, prepares_online=True),
            )
            for matmul in (plan.matmul(str(case.axis("operator")), tokens) for tokens in TOKENS)
        )

    def judge(self, case: Case, plan: PartitionPlan, measured: Measured) -> Judgement:
        points = self.points(case, plan)
        compile_s = [rounds_of(measured, point, lambda visit: visit.compile_s) for point in points]
        medians = tuple(map(statistics.median, compile_s))
        fit = fit_graph_generation([point.matmul.rows * point.matmul.tokens for point in points], medians)
        largest = Metric(name="compile_s", unit="s", value=medians[-1], samples=compile_s[-1], margin=COMPILE_MARGIN)
        return Judgement(
            verdict=judge_gates(()),
            what=f"graph of {points[-1].matmul.name}, {TOKENS[-1]} tokens",
            metrics=(largest,),
            measured_s=medians[-1],
            detail=GraphGenerationDetail(
                tokens=TOKENS, seconds=medians, base_s=fit.base_s, slope_s_per_output=fit.slope_s
            ),
        )


KIND = GraphGenerationKind()
