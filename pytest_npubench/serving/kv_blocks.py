"""The KV cache of a device as a count of blocks.

Which block a token's keys and values lie in is the executor's business; planning needs to know whether there is one.
What a request finds in the cache and leaves there is asked here: a simulated engine's cache may hold more than a count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npubench.errors import ConfigError

if TYPE_CHECKING:
    from pytest_npubench.serving.member import BatchMember


class KvBlocks:
    """The paged KV cache as a count: free blocks out of `num_blocks`. Raises ConfigError for a size below 1.

    A prompt of P tokens that generates n keeps at most P + n - 1 tokens: the last one is never fed back. state_blocks
    are what an admitted request takes beside its tokens, whatever their number: the states of layers that have no keys
    and values. It is set before anybody arrives.

    Worked number: 100 tokens in blocks of 16 hold ceil(100 / 16) = 7 blocks (Kwon et al. 2023, section 4.1).
    """

    def __init__(self, *, num_blocks: int, block_size_tokens: int) -> None:
        for name, value in (("kv_blocks", num_blocks), ("block_size_tokens", block_size_tokens)):
            if value < 1:
                raise ConfigError(f"{name} is {value}; want at least 1")
        self.num_blocks = num_blocks
        self.block_size_tokens = block_size_tokens
        self.num_free = num_blocks
        self.state_blocks = 0

    @property
    def capacity_tokens(self) -> int:
        return self.num_blocks * self.block_size_tokens

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that a request of so many tokens holds."""
        return self.state_blocks - (-num_tokens // self.block_size_tokens)

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
        self.take(num_blocks)
        return 0

    def advance(self, member: BatchMember) -> None:
        """Tokens of the member's prompt have left the last layer."""

    def preempt(self, member: BatchMember, num_blocks: int, num_tokens: int) -> None:
        """The member will give its num_blocks back and come again; they hold keys and values of num_tokens."""

    def release(self, member: BatchMember, num_blocks: int) -> None:
        self.give_back(num_blocks)
