"""A KV cache that keeps what freed blocks hold until they are taken again.

Blocks are taken in the order in which they were freed, those of a preempted request from its end on, so that the
beginning of its prompt is often still there when it comes back, and is not prefilled again. A part of each new prompt
may be there as well, from requests before it. Both are whole blocks, and the last token is always computed, for its
output.
"""

from __future__ import annotations

from typing import NamedTuple

from pytest_npubench.serving.kv_blocks import KvBlocks
from pytest_npubench.serving.member import BatchMember


class LeftBlocks(NamedTuple):
    """What a preempted request left behind: num_freed blocks, of which num_full, from the first on, hold its keys and
    values. They are taken, from the last on, once num_taken_before blocks were taken that had been freed earlier."""

    num_full: int
    num_freed: int
    num_taken_before: int

    def num_left(self, num_taken: int) -> int:
        lost = max(0, num_taken - self.num_taken_before)
        return max(0, min(self.num_full, self.num_freed - lost))


class KeptBlocks(KvBlocks):
    """KvBlocks in which a preempted request finds what it left, where it keeps_preempted, and every new prompt its
    first prefix_hit_fraction."""

    def __init__(
        self,
        *,
        num_blocks: int,
        block_size_tokens: int,
        keeps_preempted: bool = True,
        prefix_hit_fraction: float = 0.0,
    ) -> None:
        super().__init__(num_blocks=num_blocks, block_size_tokens=block_size_tokens)
        self._keeps_preempted = keeps_preempted
        self._prefix_hit_fraction = prefix_hit_fraction
        self._left: dict[int, LeftBlocks] = {}  # by request
        self._num_back = 0  # blocks that were ever given back, less those that were found

    @property
    def num_taken(self) -> int:
        """Blocks ever taken in the order in which they were freed. Found ones, wherever they stood, do not count."""
        return self.num_blocks - self.num_free + self._num_back

    def give_back(self, num_blocks: int) -> None:
        super().give_back(num_blocks)
        self._num_back += num_blocks

    def cached_tokens(self, member: BatchMember) -> int:
        """Tokens of the member's prompt that need not be prefilled if it is admitted now."""
        size = self.block_size_tokens
        num_tokens = 0
        if (left := self._left.get(member.id)) is not None:
            num_tokens = left.num_left(self.num_taken) * size
        elif member.scheduled_at is None:
            num_tokens = int(self._prefix_hit_fraction * member.prompt_tokens)
        return min(num_tokens, member.prompt_tokens - 1) // size * size

    def admit(self, member: BatchMember, num_blocks: int) -> int:
        num_tokens = self.cached_tokens(member)
        if self._left.pop(member.id, None) is not None:
            self._num_back -= self.decoding(num_tokens // self.block_size_tokens)
        self.take(num_blocks)
        return num_tokens

    def preempt(self, member: BatchMember, num_blocks: int, num_tokens: int) -> None:
        if self._keeps_preempted:
            self._left[member.id] = LeftBlocks(
                num_full=num_tokens // self.block_size_tokens,
                # each block that is taken costs a row, whatever layers it was of
                num_freed=self.rows_of(num_tokens) if self.num_windowed else num_blocks,
                num_taken_before=self.num_taken + self.num_free,
            )
