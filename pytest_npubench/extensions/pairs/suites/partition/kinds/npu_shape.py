"""More weight rows than columns, or the other way round, on the static unit (HeteroInfer, section 3.2, NPU-3).

[rows, cols] x tokens against [cols, rows] x tokens: equal FLOP and weight bytes. The paper's NPU is better where the
weight has more rows than columns; feed-forward down is the operator that has it the other way round.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_npubench.extensions.pairs.partition.matmul import Matmul
from pytest_npubench.extensions.pairs.suites.partition.experiment import ShapeExperiment, check_columns


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


class NpuShapeKind(ShapeExperiment):
    name = "npu_shape"
    ratio = "shape_ratio"
    sides = ("tall", "wide")
    detail = NpuShapeDetail

    def shapes(self, matmul: Matmul) -> tuple[Matmul, Matmul]:
        long, short = max(matmul.rows, matmul.cols), min(matmul.rows, matmul.cols)
        tall = Matmul(name=f"{matmul.name}_tall", rows=long, cols=short, tokens=matmul.tokens)
        return tall, Matmul(name=f"{matmul.name}_wide", rows=short, cols=long, tokens=matmul.tokens)

    def what(self, first: Matmul) -> str:
        return f"[{first.cols}, {first.rows}] / [{first.rows}, {first.cols}], {first.tokens} tokens"


KIND = NpuShapeKind()
