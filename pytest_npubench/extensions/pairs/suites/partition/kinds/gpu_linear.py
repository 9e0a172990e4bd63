"""The unit of dynamic shapes: time is flat up to a threshold, then linear in FLOP (HeteroInfer, section 3.1, GPU-1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_npubench.extensions.pairs.partition.descriptors import fit_linear_past_threshold
from pytest_npubench.extensions.pairs.partition.matmul import GPU, Matmul
from pytest_npubench.extensions.pairs.suites.partition.experiment import SizeExperiment, check_columns


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


class GpuLinearKind(SizeExperiment):
    name = "gpu_linear"
    unit = GPU
    tokens = (1, 2, 4, 8, 16, 32, 64, 128, 256)

    def detail(self, matmuls: Sequence[Matmul], seconds: tuple[float, ...]) -> GpuLinearDetail:
        fit = fit_linear_past_threshold(self.tokens, seconds)
        return GpuLinearDetail(
            tokens=self.tokens,
            seconds=seconds,
            flops_per_s=tuple(matmul.flops / value for matmul, value in zip(matmuls, seconds, strict=True)),
            threshold_tokens=fit.threshold,
            floor_s=fit.floor_s,
            slope_s_per_token=fit.slope_s,
        )


KIND = GpuLinearKind()
