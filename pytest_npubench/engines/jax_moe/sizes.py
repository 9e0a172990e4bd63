"""The sizes that a serving engine is compiled for.

A size has room for num_single sequences of one token and num_prefill tokens of prompts. Worked example: a chunk of 512
tokens, batches of at most 128: 8, 32 and 128 single tokens, then 512, 1024, 2048, 4096 and 8192 tokens of prompts
beside 128 single ones, and the head: 9 binaries, which all policies share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

KEYS = 256
"""Keys that a step of the attention looks at; page tables are of whole steps."""
FEW, TIMES = 8, 4  # the smallest size of single tokens, and how much larger the next one is
MOST_CHUNKS = 16  # of the largest size; longer passes run in pieces
NUM_PROMPTS = 32  # sequences of prompts in a pass
LONGEST_CONTEXT = 32_768  # of a sequence, where the cache holds more: page tables lie in a TPU's small scalar memory


class Size(NamedTuple):
    """num_single tokens that are a sequence each, then num_prefill tokens of at most num_prompts sequences."""

    num_single: int
    num_prefill: int = 0
    num_prompts: int = 0

    @property
    def num_tokens(self) -> int:
        return self.num_single + self.num_prefill

    @property
    def num_sequences(self) -> int:
        return self.num_single + self.num_prompts


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingSizes:
    """What decides the sizes: chunk_tokens are the prefill tokens of an iteration."""

    kv_capacity_tokens: int
    block_size_tokens: int
    chunk_tokens: int
    max_batch_size: int

    @property
    def decode(self) -> tuple[Size, ...]:
        """Ascending."""
        most = -(-self.max_batch_size // FEW) * FEW
        sizes = [FEW]
        while sizes[-1] * TIMES < most:
            sizes.append(sizes[-1] * TIMES)
        return tuple(map(Size, dict.fromkeys((*sizes, most))))

    @property
    def passes(self) -> tuple[Size, ...]:
        """Ascending."""
        num_single, chunk = self.decode[-1].num_single, -(-self.chunk_tokens // FEW) * FEW
        doublings = range(MOST_CHUNKS.bit_length())
        lengths = [chunk << index for index in doublings if index == 0 or chunk << index < 2 * self.kv_capacity_tokens]
        return tuple(Size(num_single, length, NUM_PROMPTS) for length in lengths)

    @property
    def longest_context(self) -> int:
        return min(self.kv_capacity_tokens, LONGEST_CONTEXT)

    @property
    def num_pages(self) -> int:
        """Of a sequence, in whole steps of the attention."""
        step = max(1, KEYS // self.block_size_tokens)
        return -(-self.longest_context // self.block_size_tokens // step) * step

    @property
    def num_layer_pages(self) -> int:
        """Of a layer's part of the pool: behind those that are lent, scratch for a token of every row."""
        scratch = -(-(self.decode[-1].num_single + 1) // self.block_size_tokens)
        return self.kv_capacity_tokens // self.block_size_tokens + scratch
