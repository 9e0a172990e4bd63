"""The operator that is split, and how: parts of a matrix multiplication given to two units.

An operator is out[M, S] = weight[M, K] @ activation[K, S]: M output features (weight rows), K input features, S tokens;
2 M K S FLOP. HeteroInfer writes it [M, K] x [K, S]. A Split gives every (row, token) to exactly one part; a part's
tokens are padded to a size that its unit has a graph for. Weight-centric cuts rows, activation-centric cuts tokens
(HeteroInfer, section 4.2).

Worked number: [4096, 4096] x [4096, 256], rows 1:3 on a tile of 32: the GPU has rows 0-1023, the NPU 1024-4095.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pytest_npubench.errors import PartitionError
from pytest_npubench.extensions.pairs.partition.number_formats import FP32

GPU, NPU = "gpu", "npu"
ROLES = (GPU, NPU)


@dataclass(frozen=True, slots=True, kw_only=True)
class Matmul:
    """One operator: weight [rows, cols], activation [cols, tokens]. `name` is its place in a decoder: ffn_down. dtype:
    one of partition.number_formats."""

    name: str
    rows: int
    cols: int
    tokens: int
    dtype: str = FP32

    @property
    def flops(self) -> int:
        return 2 * self.rows * self.cols * self.tokens

    @property
    def is_decode(self) -> bool:
        """Whether it is one token's: a decode step reads all weights of a model, so that it finds none in a cache."""
        return self.tokens == 1

    @property
    def weight_elements(self) -> int:
        return self.rows * self.cols


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one unit does in one go: rows [first_row, first_row + num_rows) of the tokens
    [first_token, first_token + num_tokens), run on a graph for `padded_tokens` >= num_tokens."""

    unit: str
    first_row: int
    num_rows: int
    first_token: int
    num_tokens: int
    padded_tokens: int

    @property
    def shape(self) -> tuple[int, int]:
        """[rows, padded tokens]: what a static unit has a graph for."""
        return self.num_rows, self.padded_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphForm:
    """How a graph multiplies. activation_first: the transposed product, activation times weight. is_tall: a weight with
    more columns than rows is cut along its columns into blocks that have no more, whose products are summed."""

    activation_first: bool = False
    is_tall: bool = False


PLAIN = GraphForm()


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """How one operator is run. Each unit takes its parts in order; both begin at once.

    prepares_online: graphs for these shapes are made when they are needed, and their time counts (HeteroInfer,
    section 5.3, Online-prepare). form: of the static unit's graphs, where the pair's unit has several (HeteroInfer,
    section 3.2).
    """

    strategy: str
    parts: tuple[Part, ...]
    prepares_online: bool = False
    form: GraphForm = PLAIN

    def of(self, unit: str) -> tuple[Part, ...]:
        return tuple(part for part in self.parts if part.unit == unit)

    def share(self, unit: str) -> float:
        """Returns the fraction of the outputs (row, token) that is the unit's: padding is no output."""
        outputs = {role: sum(part.num_rows * part.num_tokens for part in self.of(role)) for role in ROLES}
        return outputs[unit] / sum(outputs.values())

    @property
    def units(self) -> tuple[str, ...]:
        """Returns the units that have something to do, the GPU first."""
        return tuple(unit for unit in ROLES if self.of(unit))


def check_split(matmul: Matmul, split: Split) -> None:
    """Raises PartitionError where a part is empty, leaves the operator, is padded to less than it holds, or where the
    parts do not cover every (row, token) exactly once."""
    for part in split.parts:
        _check_part(matmul, split, part)
    covered = sum(part.num_rows * part.num_tokens for part in split.parts)
    if covered != matmul.rows * matmul.tokens or _any_overlap(split.parts):
        raise PartitionError(
            f"{split.strategy} of {matmul.name}: its parts cover {covered} of {matmul.rows * matmul.tokens} outputs"
            f"{', some twice' if _any_overlap(split.parts) else ''}; want each exactly once"
        )


def _check_part(matmul: Matmul, split: Split, part: Part) -> None:
    inside = (
        part.unit in ROLES
        and 0 <= part.first_row < part.first_row + part.num_rows <= matmul.rows
        and 0 <= part.first_token < part.first_token + part.num_tokens <= matmul.tokens
        and part.padded_tokens >= part.num_tokens
    )
    if not inside:
        operator = f"{matmul.name} [{matmul.rows}, {matmul.cols}] x {matmul.tokens} tokens"
        raise PartitionError(f"{split.strategy} of {operator}: {part} is no part of it")


def _any_overlap(parts: Iterable[Part]) -> bool:
    listed = list(parts)
    return any(
        part.first_row < other.first_row + other.num_rows
        and other.first_row < part.first_row + part.num_rows
        and part.first_token < other.first_token + other.num_tokens
        and other.first_token < part.first_token + part.num_tokens
        for index, part in enumerate(listed)
        for other in listed[:index]
    )


def alone(matmul: Matmul, unit: str) -> Split:
    """Returns the whole operator on one unit, unpadded."""
    return Split(strategy=f"{unit}_only", parts=(_rows(matmul, unit, 0, matmul.rows),))


def row_split(matmul: Matmul, gpu_share: float = 0.5) -> Split:
    """Returns the first rows on the GPU role, the others on the NPU role, unpadded. Raises PartitionError where either
    gets none."""
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
