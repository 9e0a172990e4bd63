"""The few splits that measurements of waiting need: one unit alone, and rows shared between both."""

from __future__ import annotations

from pytest_npubench.errors import PartitionError
from pytest_npubench.extensions.pairs.partition.matmul import GPU, NPU, Matmul, Part, Split


def alone(matmul: Matmul, unit: str) -> Split:
    """The whole operator on one unit, unpadded."""
    return Split(strategy=f"{unit}_only", parts=(_rows(matmul, unit, 0, matmul.rows),))


def row_split(matmul: Matmul, gpu_share: float = 0.5) -> Split:
    """The first rows on the GPU role, the others on the NPU role, unpadded. Raises PartitionError where either gets
    none."""
    gpu_rows = round(matmul.rows * gpu_share)
    if not 0 < gpu_rows < matmul.rows:
        raise PartitionError(f"a GPU share of {gpu_share:g} of {matmul.rows} rows leaves a unit without any")
    parts = (_rows(matmul, GPU, 0, gpu_rows), _rows(matmul, NPU, gpu_rows, matmul.rows - gpu_rows))
    return Split(strategy=f"rows_{gpu_rows}_{matmul.rows - gpu_rows}", parts=parts)


def _rows(matmul: Matmul, unit: str, first: int, number: int) -> Part:
    return Part(
        unit=unit,
        first_row=first,
        num_rows=number,
        first_token=0,
        num_tokens=matmul.tokens,
        padded_tokens=matmul.tokens,
    )
