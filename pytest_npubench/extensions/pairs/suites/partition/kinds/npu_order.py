"""Which operand comes first on the static unit (HeteroInfer, section 3.2, NPU-2).

[rows, cols] x [cols, tokens] against its transpose [tokens, cols] x [cols, rows]: equal FLOP, equal result. On the
paper's NPU [14336, 4096] x [4096, K] is 6 times as fast as the reverse; a unit that does not care has a ratio of 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_npubench.extensions.pairs.partition.matmul import Matmul
from pytest_npubench.extensions.pairs.suites.partition.experiment import ShapeExperiment, check_columns


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


class NpuOrderKind(ShapeExperiment):
    name = "npu_order"
    ratio = "order_ratio"
    sides = ("weight_first", "activation_first")
    detail = NpuOrderDetail

    def shapes(self, matmul: Matmul) -> tuple[Matmul, Matmul]:
        name = f"{matmul.name}_reversed"
        return matmul, Matmul(name=name, rows=matmul.tokens, cols=matmul.cols, tokens=matmul.rows)

    def what(self, first: Matmul) -> str:
        return f"[{first.rows}, {first.cols}] x {first.tokens}: activation first / weight first"


KIND = NpuOrderKind()
