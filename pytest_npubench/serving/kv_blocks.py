"""The KV cache of a device as a count of blocks.

Which block a token's keys and values lie in is the executor's business; planning needs to know whether there is one.
What a request finds in the cache and leaves there is asked here: a simulated engine's cache may hold more than a count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pytest_npubench.errors import ConfigError

if TYPE_CHECKING:
    from pytest_npubench.serving.member import BatchMember


class KvBlocks:
    """The paged KV cache as a count: free blocks out of `num_blocks`. Raises ConfigError for a size below 1.

    A prompt of P tokens that generates n keeps at most P + n - 1 tokens: the last one is never fed back. state_blocks
    are what an admitted request takes beside its tokens, whatever their number: the states of layers that have no keys
    and values.

    A block may be of a group of layers, as in vLLM's hybrid KV cache manager: num_full groups keep all tokens of a
    request, num_windowed those that a window reaches, and blocks that it has left hold the next tokens.
    chunk_tokens: the most that a prompt advances at once; None: all. All of this is set before anybody arrives.

    Worked numbers: 100 tokens in blocks of 16 hold ceil(100 / 16) = 7 blocks (Kwon et al. 2023, section 4.1). 1,000
    tokens with one group of each kind and a window of 128 hold 63 + min(63, ceil(127 / 16) + 1 = 9) = 72.
    """

    are_counted: ClassVar[bool] = True
    """And no more: `advance` has nothing to do."""

    def __init__(self, *, num_blocks: int, block_size_tokens: int) -> None:
        for name, value in (("kv_blocks", num_blocks), ("block_size_tokens", block_size_tokens)):
            if value < 1:
                raise ConfigError(f"{name} is {value}; want at least 1")
        self.num_blocks = num_blocks
        self.block_size_tokens = block_size_tokens
        self.num_free = num_blocks
        self.state_blocks = 0
        self.num_full, self.num_windowed, self.window = 1, 0, 1
        self.chunk_tokens: int | None = None

    @property
    def capacity_tokens(self) -> int:
        return self.num_blocks * self.block_size_tokens // (self.num_full + self.num_windowed)

    def rows_of(self, num_tokens: int) -> int:
        """Blocks of a group that keeps all of so many tokens."""
        return -(-num_tokens // self.block_size_tokens)

    @property
    def window_rows(self) -> int:
        """Blocks that a window reaches at most, wherever it begins."""
        return self.rows_of(self.window - 1) + 1

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that a request takes to prefill so many tokens: vLLM's SlidingWindowSpec has the bound of a chunk."""
        rows = -(-num_tokens // self.block_size_tokens)
        if not self.num_windowed:
            return self.state_blocks + self.num_full * rows
        most = rows if self.chunk_tokens is None else self.rows_of(self.window - 1 + self.chunk_tokens) + 1
        return self.state_blocks + self.num_full * rows + self.num_windowed * min(rows, most)

    def decoding(self, rows: int) -> int:
        """Blocks that a request holds which decodes, with so many rows of tokens."""
        windowed = self.num_windowed and self.num_windowed * min(rows, self.window_rows)
        return self.state_blocks + self.num_full * rows + windowed

    def take(self, num_blocks: int) -> None:
        self.num_free -= num_blocks
        assert self.num_free >= 0

    def give_back(self, num_blocks: int) -> None:
        self.num_free += num_blocks
        assert self.num_free <= self.num_blocks

    def cached_tokens(self, member: BatchMember) -> int:
        """Tokens of the member's prompt that need not be prefilled if it is admitted now: none."""
        return 0

    def num_free_wanted(self, member: BatchMember, num_blocks: int) -> int:
        """How many free blocks it takes to admit a member that will hold num_blocks."""
        return num_blocks

    def admit(self, member: BatchMember, num_blocks: int) -> int:
        """The member holds num_blocks from now on. Returns its `cached_tokens`."""
        self.num_free -= num_blocks
        return 0

    def advance(self, member: BatchMember) -> None:
        """Tokens of the member's prompt have left the last layer."""

    def preempt(self, member: BatchMember, num_blocks: int, num_tokens: int) -> None:
        """The member will give its num_blocks back and come again; they hold keys and values of num_tokens."""

    def release(self, member: BatchMember, num_blocks: int) -> None:
        self.give_back(num_blocks)
