"""Which operand comes first on the static unit (HeteroInfer, section 3.2, NPU-2).

[rows, cols] x [cols, tokens] against its transpose [tokens, cols] x [cols, rows]: equal FLOP, equal result. On the
paper's NPU [14336, 4096] x [4096, K] is 6 times as fast as the reverse; a unit that does not care has a ratio of 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Axes, Case
from pytest_npubench.extensions.pairs.paired_rounds import time_metric, whole_rounds
from pytest_npubench.extensions.pairs.partition.descriptors import fit_ratio
from pytest_npubench.extensions.pairs.partition.matmul import NPU, Matmul, alone
from pytest_npubench.extensions.pairs.suites.partition.experiment import (
    OperatorExperiment,
    check_columns,
    npu_s,
    ratio_metric,
)
from pytest_npubench.extensions.pairs.suites.partition.plan import PartitionPlan
from pytest_npubench.extensions.pairs.suites.partition.points import SplitPoint
from pytest_npubench.verdict import judge_gates
from pytest_npubench.verdict.result import Judgement


@dataclass(frozen=True, slots=True, kw_only=True)
class NpuOrderDetail:
    """order_ratio: activation first over weight first; its interval is None below 6 rounds. Seconds by round."""

    order_ratio: float
    order_ratio_interval: tuple[float, float] | None
    weight_first_s: tuple[float, ...]
    activation_first_s: tuple[float, ...]

    def __post_init__(self) -> None:
        """Raises ValueError for a column without a round."""
        check_columns(self.weight_first_s)
        check_columns(self.activation_first_s)


class NpuOrderKind(OperatorExperiment):
    name = "npu_order"

    def axes(self, plan: PartitionPlan) -> Iterable[Axes]:
        """Returns the axes, without operators with as many rows as tokens, where both orders are one shape."""
        wanted = (
            name for name in plan.operator_names if plan.matmul(name, 1).rows != plan.partition.standard_sizes[-1]
        )
        return tuple((("operator", name),) for name in wanted)

    def points(self, case: Case, plan: PartitionPlan) -> tuple[SplitPoint, SplitPoint]:
        weight_first = plan.matmul(str(case.axis("operator")), plan.partition.standard_sizes[-1])
        activation_first = Matmul(
            name=f"{weight_first.name}_reversed",
            rows=weight_first.tokens,
            cols=weight_first.cols,
            tokens=weight_first.rows,
        )
        return tuple(  # type: ignore[return-value]
            SplitPoint(matmul=matmul, split=alone(matmul, NPU)) for matmul in (weight_first, activation_first)
        )

    def judge(self, case: Case, plan: PartitionPlan, measured: Measured) -> Judgement:
        points = self.points(case, plan)
        measured = whole_rounds(measured, points)
        weight_first_s, activation_first_s = (npu_s(measured, point) for point in points)
        ratio = ratio_metric("order_ratio", activation_first_s, weight_first_s)
        matmul = points[0].matmul
        return Judgement(
            verdict=judge_gates(()),
            what=f"[{matmul.rows}, {matmul.cols}] x {matmul.tokens}: activation first / weight first",
            metrics=(ratio, time_metric("weight_first_s", weight_first_s)),
            detail=NpuOrderDetail(
                order_ratio=ratio.value,
                order_ratio_interval=fit_ratio(activation_first_s, weight_first_s).interval,
                weight_first_s=weight_first_s,
                activation_first_s=activation_first_s,
            ),
        )


KIND = NpuOrderKind()
