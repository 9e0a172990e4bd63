"""The static unit: time goes up in stages as wide as its array (HeteroInfer, section 3.2, NPU-1).

On the paper's NPU every dimension below 32 costs as much as 32. Sizes lie closer than any stage expected and reach over
several; the width that explains the times best is reported, or none where a straight line does as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_npubench.extensions.pairs.partition.descriptors import fit_stage
from pytest_npubench.extensions.pairs.partition.matmul import NPU, Matmul
from pytest_npubench.extensions.pairs.suites.partition.experiment import SizeExperiment, check_columns


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


class NpuStageKind(SizeExperiment):
    name = "npu_stage"
    unit = NPU
    tokens = (4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 48, 56, 64, 68, 80, 96)

    def detail(self, matmuls: Sequence[Matmul], seconds: tuple[float, ...]) -> NpuStageDetail:
        stage = fit_stage(self.tokens, seconds)
        return NpuStageDetail(tokens=self.tokens, seconds=seconds, stage_tokens=stage.width, step_s=stage.step_s)


KIND = NpuStageKind()
