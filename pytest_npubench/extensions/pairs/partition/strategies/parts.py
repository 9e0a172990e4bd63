"""Parts of an operator as the strategies put them together.

Worked number: the NPU's rows 1024-4095 of 300 tokens on graphs of 256 and 128: [1024:, :256] and [1024:, 256:300],
the second padded to 128.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pytest_npubench.extensions.pairs.partition.matmul import GPU, NPU, Matmul, Part, Split
from pytest_npubench.extensions.pairs.partition.options import SplitOptions


def gpu_part(matmul: Matmul, *, num_rows: int | None = None, first_token: int = 0) -> Part:
    """Returns the first `num_rows` rows (None: all) of the tokens from first_token on, unpadded."""
    num_tokens = matmul.tokens - first_token
    return Part(
        unit=GPU,
        first_row=0,
        num_rows=matmul.rows if num_rows is None else num_rows,
        first_token=first_token,
        num_tokens=num_tokens,
        padded_tokens=num_tokens,
    )


def npu_parts(matmul: Matmul, graphs: Iterable[int], *, first_row: int = 0) -> tuple[Part, ...]:
    """Returns the rows from first_row on, one graph after the other until the tokens or the graphs are used up."""
    parts: list[Part] = []
    first_token = 0
    for padded in graphs:
        num_tokens = min(padded, matmul.tokens - first_token)
        parts.append(
            Part(
                unit=NPU,
                first_row=first_row,
                num_rows=matmul.rows - first_row,
                first_token=first_token,
                num_tokens=num_tokens,
                padded_tokens=padded,
            )
        )
        first_token += num_tokens
    return tuple(parts)


def row_splits(strategy: str, matmul: Matmul, options: SplitOptions) -> Iterator[Split]:
    """Yields the GPU's rows first and exact, the NPU's rest on a multiple of the tile, its tokens padded."""
    graphs = options.padded(matmul.tokens)
    for npu_rows in options.npu_rows(matmul.rows, matmul.tokens):
        gpu_rows = matmul.rows - npu_rows
        parts = (gpu_part(matmul, num_rows=gpu_rows), *npu_parts(matmul, graphs, first_row=gpu_rows))
        yield Split(strategy=strategy, parts=parts)
