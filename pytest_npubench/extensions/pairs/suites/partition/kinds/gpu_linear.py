"""The unit of dynamic shapes: time is flat up to a threshold, then linear in FLOP (HeteroInfer, section 3.1, GPU-1)."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Case
from pytest_npubench.extensions.pairs.paired_rounds import time_metric
from pytest_npubench.extensions.pairs.partition.descriptors import fit_linear_past_threshold
from pytest_npubench.extensions.pairs.partition.matmul import GPU, alone
from pytest_npubench.extensions.pairs.suites.partition.experiment import OperatorExperiment, check_columns, rounds_of
from pytest_npubench.extensions.pairs.suites.partition.plan import PartitionPlan
from pytest_npubench.extensions.pairs.suites.partition.points import SplitPoint
from pytest_npubench.verdict import judge_gates
from pytest_npubench.verdict.result import Judgement

TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLinearDetail:
    """Medians by number of tokens. threshold_tokens None: none found."""

    tokens: tuple[int, ...]
    seconds: tuple[float, ...]
    flops_per_s: tuple[float, ...]
    threshold_tokens: float | None
    floor_s: float
    slope_s_per_token: float

    def __post_init__(self) -> None:
        """Raises ValueError for columns that are empty or of several lengths."""
        check_columns(self.tokens, self.seconds, self.flops_per_s)


class GpuLinearKind(OperatorExperiment):
    name = "gpu_linear"

    def points(self, case: Case, plan: PartitionPlan) -> tuple[SplitPoint, ...]:
        matmuls = (plan.matmul(str(case.axis("operator")), tokens) for tokens in TOKENS)
        return tuple(SplitPoint(matmul=matmul, split=alone(matmul, GPU)) for matmul in matmuls)

    def judge(self, case: Case, plan: PartitionPlan, measured: Measured) -> Judgement:
        points = self.points(case, plan)
        seconds = [rounds_of(measured, point, lambda visit: visit.gpu_s) for point in points]
        medians = tuple(map(statistics.median, seconds))
        fit = fit_linear_past_threshold(TOKENS, medians)
        return Judgement(
            verdict=judge_gates(()),
            what=f"{points[-1].matmul.name} on the GPU role, {TOKENS[-1]} tokens",
            metrics=(time_metric("smallest_s", seconds[0]), time_metric("largest_s", seconds[-1])),
            measured_s=medians[-1],
            detail=GpuLinearDetail(
                tokens=TOKENS,
                seconds=medians,
                flops_per_s=tuple(point.matmul.flops / value for point, value in zip(points, medians, strict=True)),
                threshold_tokens=fit.threshold,
                floor_s=fit.floor_s,
                slope_s_per_token=fit.slope_s,
            ),
        )


KIND = GpuLinearKind()
