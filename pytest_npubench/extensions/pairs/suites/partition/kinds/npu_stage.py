"""The static unit: time goes up in stages as wide as its array (HeteroInfer, section 3.2, NPU-1).

On the paper's NPU every dimension below 32 costs as much as 32. Sizes lie closer than any stage expected and reach over
several; the width that explains the times best is reported, or none where a straight line does as well.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Case
from pytest_npubench.extensions.pairs.paired_rounds import time_metric
from pytest_npubench.extensions.pairs.partition.descriptors import fit_stage
from pytest_npubench.extensions.pairs.partition.matmul import NPU, alone
from pytest_npubench.extensions.pairs.suites.partition.experiment import OperatorExperiment, check_columns, npu_s
from pytest_npubench.extensions.pairs.suites.partition.plan import PartitionPlan
from pytest_npubench.extensions.pairs.suites.partition.points import SplitPoint
from pytest_npubench.verdict import judge_gates
from pytest_npubench.verdict.result import Judgement

TOKENS = (4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 48, 56, 64, 68, 80, 96)


@dataclass(frozen=True, slots=True, kw_only=True)
class NpuStageDetail:
    """Medians by number of tokens. stage_tokens None: none found, and step_s is for each token."""

    tokens: tuple[int, ...]
    seconds: tuple[float, ...]
    stage_tokens: int | None
    step_s: float

    def __post_init__(self) -> None:
        """Raises ValueError for columns that are empty or of several lengths."""
        check_columns(self.tokens, self.seconds)


class NpuStageKind(OperatorExperiment):
    name = "npu_stage"

    def points(self, case: Case, plan: PartitionPlan) -> tuple[SplitPoint, ...]:
        matmuls = (plan.matmul(str(case.axis("operator")), tokens) for tokens in TOKENS)
        return tuple(SplitPoint(matmul=matmul, split=alone(matmul, NPU)) for matmul in matmuls)

    def judge(self, case: Case, plan: PartitionPlan, measured: Measured) -> Judgement:
        points = self.points(case, plan)
        seconds = [npu_s(measured, point) for point in points]
        medians = tuple(map(statistics.median, seconds))
        stage = fit_stage(TOKENS, medians)
        return Judgement(
            verdict=judge_gates(()),
            what=f"{points[-1].matmul.name} on the NPU role, {TOKENS[-1]} tokens",
            metrics=(time_metric("smallest_s", seconds[0]), time_metric("largest_s", seconds[-1])),
            measured_s=medians[-1],
            detail=NpuStageDetail(tokens=TOKENS, seconds=medians, stage_tokens=stage.width, step_s=stage.step_s),
        )


KIND = NpuStageKind()
