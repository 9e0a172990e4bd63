"""The paged KV cache as a count: requests hold whole blocks, and there are only so many.

Which block a token's keys and values lie in is the executor's business; planning needs to know whether there is one.
A prompt of P tokens that generates n keeps at most P + n - 1 tokens: the last one is never fed back.

Worked number: 100 tokens in blocks of 16 hold ceil(100 / 16) = 7 blocks (Kwon et al. 2023, section 4.1).
"""

from __future__ import annotations

from pytest_npubench.errors import ConfigError


class KvBlocks:
    """Free blocks out of `num_blocks`. Raises ConfigError for a size below 1."""

    __slots__ = ("block_size_tokens", "num_blocks", "num_free")

    def __init__(self, *, num_blocks: int, block_size_tokens: int) -> None:
        for name, value in (("kv_blocks", num_blocks), ("block_size_tokens", block_size_tokens)):
            if value < 1:
                raise ConfigError(f"{name} is {value}; want at least 1")
        self.num_blocks = num_blocks
        self.block_size_tokens = block_size_tokens
        self.num_free = num_blocks

    @property
    def capacity_tokens(self) -> int:
        return self.num_blocks * self.block_size_tokens

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size_tokens)

    def take(self, num_blocks: int) -> None:
        assert num_blocks <= self.num_free
        self.num_free -= num_blocks

    def give_back(self, num_blocks: int) -> None:
        self.num_free += num_blocks
        assert self.num_free <= self.num_blocks
