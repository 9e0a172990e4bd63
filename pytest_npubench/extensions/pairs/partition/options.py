"""Which splits are considered at all: the token counts that graphs exist for, the tile, the grid of row shares.

HeteroInfer does not print its grid. With every 32-row tile as a cut its Table 3 does not come out; with quarters in
decode and fifths in prefill it does, so the grid is part of the question and stands in every profile.

Worked number: standard sizes 128, 256: 200 tokens are padded to 256; 300 tokens to 256 and 128 (44 of them).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from pytest_npubench.errors import PartitionError

QUARTERS = (0.25, 0.5, 0.75)
FIFTHS = (0.2, 0.4, 0.6, 0.8)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitOptions:
    """standard_sizes: token counts of the static unit's graphs, increasing; none: a graph for every length.

    tile: the static unit's rows are a multiple of it. decode_shares, prefill_shares: the GPU's share of the weight
    rows, for 1 token and for more. max_small_parts: activation-centric splits put any number of the largest graph in
    sequence, and at most so many smaller ones. Raises PartitionError on sizes that do not increase from 1, a tile below
    1 and shares outside [0, 1]; a share of 0 or 1 is a single unit's and adds nothing.
    """

    standard_sizes: tuple[int, ...]
    tile: int = 1
    decode_shares: tuple[float, ...] = QUARTERS
    prefill_shares: tuple[float, ...] = FIFTHS
    max_small_parts: int = 3

    def __post_init__(self) -> None:
        if any(size < 1 for size in self.standard_sizes) or any(b <= a for a, b in pairwise(self.standard_sizes)):
            raise PartitionError(f"standard sizes {self.standard_sizes}; want whole numbers from 1 that increase")
        if self.tile < 1 or self.max_small_parts < 0:
            raise PartitionError(
                f"tile {self.tile}, max_small_parts {self.max_small_parts}; want at least 1 and at least 0"
            )
        for share in (*self.decode_shares, *self.prefill_shares):
            if not 0 <= share <= 1:
                raise PartitionError(f"a share of {share!r} of the rows; want 0 to 1")

    def shares(self, tokens: int) -> tuple[float, ...]:
        return self.decode_shares if tokens == 1 else self.prefill_shares

    def is_standard(self, tokens: int) -> bool:
        return not self.standard_sizes or tokens in self.standard_sizes

    def padded(self, tokens: int) -> tuple[int, ...]:
        """Returns the graphs that hold `tokens`: the smallest that does, after as many of the largest as needed."""
        if not self.standard_sizes:
            return (tokens,)
        largest = self.standard_sizes[-1]
        num_largest = max(0, -(-tokens // largest) - 1)
        rest = tokens - num_largest * largest
        return (*(largest,) * num_largest, next(size for size in self.standard_sizes if size >= rest))

    def npu_rows(self, rows: int, tokens: int) -> tuple[int, ...]:
        """Returns the static unit's rows by share, rounded to the tile, each once and never none or all; decreasing."""
        tiles = {round((1 - share) * rows / self.tile) * self.tile for share in self.shares(tokens)}
        return tuple(sorted((found for found in tiles if 0 < found < rows), reverse=True))


def ratio_text(share: float) -> str:
    """GPU : NPU in small whole numbers: 0.3984 is "2:3"."""
    near = Fraction(share).limit_denominator(16)
    return f"{near.numerator}:{near.denominator - near.numerator}"
