"""More weight rows than columns, or the other way round, on the static unit (HeteroInfer, section 3.2, NPU-3).

[rows, cols] x tokens against [cols, rows] x tokens: equal FLOP and weight bytes. The paper's NPU is better where the
weight has more rows than columns; feed-forward down is the operator that has it the other way round.
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
class NpuShapeDetail:
    """shape_ratio: wide over tall; its interval is None below 6 rounds. Seconds by round."""

    shape_ratio: float
    shape_ratio_interval: tuple[float, float] | None
    tall_s: tuple[float, ...]
    wide_s: tuple[float, ...]

    def __post_init__(self) -> None:
        """Raises ValueError for a column without a round."""
        check_columns(self.tall_s)
        check_columns(self.wide_s)


class NpuShapeKind(OperatorExperiment):
    name = "npu_shape"

    def axes(self, plan: PartitionPlan) -> Iterable[Axes]:
        """A square weight is its own transpose."""
        wanted = (name for name in plan.operator_names if (of := plan.matmul(name, 1)) and of.rows != of.cols)
        return tuple((("operator", name),) for name in wanted)

    def points(self, case: Case, plan: PartitionPlan) -> tuple[SplitPoint, SplitPoint]:
        matmul = plan.matmul(str(case.axis("operator")), plan.partition.standard_sizes[-1])
        long, short = max(matmul.rows, matmul.cols), min(matmul.rows, matmul.cols)
        tall = Matmul(name=f"{matmul.name}_tall", rows=long, cols=short, tokens=matmul.tokens)
        wide = Matmul(name=f"{matmul.name}_wide", rows=short, cols=long, tokens=matmul.tokens)
        return SplitPoint(matmul=tall, split=alone(tall, NPU)), SplitPoint(matmul=wide, split=alone(wide, NPU))

    def judge(self, case: Case, plan: PartitionPlan, measured: Measured) -> Judgement:
        points = self.points(case, plan)
        measured = whole_rounds(measured, points)
        tall_s, wide_s = (npu_s(measured, point) for point in points)
        ratio = ratio_metric("shape_ratio", wide_s, tall_s)
        tall = points[0].matmul
        return Judgement(
            verdict=judge_gates(()),
            what=f"[{tall.cols}, {tall.rows}] / [{tall.rows}, {tall.cols}], {tall.tokens} tokens",
            metrics=(ratio, time_metric("tall_s", tall_s)),
            detail=NpuShapeDetail(
                shape_ratio=ratio.value,
                shape_ratio_interval=fit_ratio(wide_s, tall_s).interval,
                tall_s=tall_s,
                wide_s=wide_s,
            ),
        )


KIND = NpuShapeKind()
