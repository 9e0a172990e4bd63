"""Paged KV cache (PagedAttention, arXiv 2309.06180): blocks of slots, lent to requests as they grow.

A slot holds one token's keys and values of one layer; slot = block x block_size_tokens + offset, the same in every
layer. Behind the slots that are lent there is scratch: there rows write what nobody reads.

Worked numbers: qwen3-30b-a3b in bf16, blocks of 16: a block takes 16 x 98,304 = 1.57 MB over 48 layers.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pytest_npubench.errors import ConfigError, MeasurementError

Indices = npt.NDArray[np.int64]


class BlockTables:
    """Which blocks each request has. bytes_per_token: of keys and values over all layers."""

    def __init__(self, *, capacity_tokens: int, block_size_tokens: int, bytes_per_token: int) -> None:
        if block_size_tokens < 1 or capacity_tokens < block_size_tokens:
            raise ConfigError(
                f"a KV cache of {capacity_tokens} tokens in blocks of {block_size_tokens}; want blocks of at least 1 "
                "token, and at least one of them"
            )
        num_blocks = capacity_tokens // block_size_tokens
        self.block_size_tokens = block_size_tokens
        self.scratch_slot = num_blocks * block_size_tokens
        self._bytes_per_block = block_size_tokens * bytes_per_token
        self._free = list(range(num_blocks - 1, -1, -1))
        self._tables: dict[int, Indices] = {}
        self.num_blocks = num_blocks

    @property
    def held_bytes(self) -> int:
        """Returns the bytes of the blocks that requests hold, filled or not."""
        return (self.num_blocks - len(self._free)) * self._bytes_per_block

    def reserve(self, request: int, num_tokens: int) -> None:
        """Blocks for the request's first num_tokens. Raises MeasurementError, lending none, where too few are free."""
        table = self._tables.get(request, np.empty(0, np.int64))
        num_missing = -(-num_tokens // self.block_size_tokens) - len(table)
        if num_missing <= 0:
            return
        if num_missing > len(self._free):
            raise MeasurementError(
                f"KV cache: request {request} needs {num_missing} more blocks of {self.block_size_tokens} tokens for "
                f"{num_tokens} tokens; {len(self._free)} of {self.num_blocks} are free"
            )
        lent = [self._free.pop() for _ in range(num_missing)]
        self._tables[request] = np.concatenate((table, np.array(lent, np.int64)))

    def free(self, request: int) -> None:
        """Take back what the request holds, if anything."""
        self._free.extend(self._tables.pop(request, np.empty(0, np.int64)).tolist())

    def slots(self, request: int, first_token: int, num_tokens: int) -> Indices:
        """Slots [num_tokens] of reserved positions."""
        positions = np.arange(first_token, first_token + num_tokens)
        blocks = self._tables[request][positions // self.block_size_tokens]
        return blocks * self.block_size_tokens + positions % self.block_size_tokens

    def tables(self, requests: tuple[int, ...]) -> Indices:
        """Block tables [N, longest]; tables of shorter requests are padded with block 0."""
        tables = [self._tables[request] for request in requests]
        padded = np.zeros((len(tables), max(map(len, tables), default=0)), np.int64)
        for row, table in zip(padded, tables, strict=True):
            row[: len(table)] = table
        return padded
