"""A KV cache whose blocks several requests share, where their prompts begin with the same tokens.

    free     taken first where they hold nothing, then in the order in which they were freed: what they hold is gone
    found    held by one more request, wherever the block was

A block is there for others as soon as its tokens are prefilled, is held by all who found it, and stays until it is
taken again. Blocks of a request are freed from its last one on, so that the beginning of its prompt stays longest
(vLLM's prefix cache). Only full blocks are found, and the last token of a prompt is always computed, for its output.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count, islice, takewhile

from pytest_npubench.errors import ConfigError
from pytest_npubench.serving.kv_blocks import KvBlocks
from pytest_npubench.serving.member import BatchMember
from pytest_npubench.serving.request import PromptContent, ServingRequest

BlockName = int | tuple[int, int]
"""What a block and those before it hold: a number where others may hold the same, else (request, index)."""


@dataclass(slots=True, eq=False)
class FullBlock:
    """A block that is full, what it holds, and how many requests hold it."""

    name: BlockName
    num_holders: int = 1


class SharedBlocks(KvBlocks):
    """KvBlocks that are found by what they hold (ServingRequest.content). `num_shared` are holders beyond the first,
    over all blocks.

    Where two requests filled a block each with the same, the one that was filled first is found while it is there.

    Worked number: a prompt of two blocks that two requests hold and a third one has freed is held twice: num_shared is
    2, and once both have ended its blocks are the last in the queue, the second one of them first.
    """

    are_counted = False

    def __init__(self, *, num_blocks: int, block_size_tokens: int) -> None:
        super().__init__(num_blocks=num_blocks, block_size_tokens=block_size_tokens)
        self._full: dict[BlockName, list[FullBlock]] = {}
        self._free: OrderedDict[FullBlock, None] = OrderedDict()
        self._num_empty = num_blocks  # of the free ones
        self._names = BlockNames(block_size_tokens)
        self._full_of: dict[int, list[FullBlock]] = {}  # by request, from its first block on
        self.num_shared = 0
        self.num_cached_tokens = 0
        """Of prompts: were in the cache when they were first admitted."""

    def cached_tokens(self, member: BatchMember) -> int:
        """Tokens of the member's prompt that need not be prefilled if it is admitted now."""
        return len(self._cached(member)) * self.block_size_tokens

    def num_free_wanted(self, member: BatchMember, num_blocks: int) -> int:
        return self.num_new(num_blocks, self._cached(member))

    def admit(self, member: BatchMember, num_blocks: int) -> int:
        self._full_of[member.id] = full = self._cached(member)
        self.hold(full)
        self.take(num_blocks - len(full))
        num_tokens = len(full) * self.block_size_tokens
        if member.scheduled_at is None:
            self.num_cached_tokens += num_tokens
        return num_tokens

    def advance(self, member: BatchMember) -> None:
        if member.request.content is not None:
            self._fill(member, min(member.prefilled_tokens, member.request.prompt_tokens))

    def preempt(self, member: BatchMember, num_blocks: int, num_tokens: int) -> None:
        self._fill(member, num_tokens)

    def release(self, member: BatchMember, num_blocks: int) -> None:
        self.give_back(num_blocks, self._full_of.pop(member.id))

    def _cached(self, member: BatchMember) -> list[FullBlock]:
        """Blocks that hold the beginning of its prompt, which leave at least its last token to be computed."""
        most = (member.prompt_tokens - 1) // self.block_size_tokens
        return self.find(islice(self._names.of(member.request), most))

    def _fill(self, member: BatchMember, num_tokens: int) -> None:
        """The member's blocks hold so many tokens, and may be found."""
        full = self._full_of[member.id]
        if (number := num_tokens // self.block_size_tokens - len(full)) > 0:
            full += self.fill(islice(self._names.of(member.request, len(full)), number))

    def find(self, names: Iterable[BlockName]) -> list[FullBlock]:
        """A block for as many of them, from the first on, as are there."""
        return [self._full[name][0] for name in takewhile(self._full.__contains__, names)]

    def num_new(self, num_blocks: int, cached: Sequence[FullBlock]) -> int:
        """How many free blocks it takes to hold num_blocks, of which these are cached: with a holder, or free."""
        return num_blocks - sum(block.num_holders > 0 for block in cached)

    def hold(self, cached: Iterable[FullBlock]) -> None:
        for block in cached:
            if block.num_holders:
                self.num_shared += 1
            else:
                del self._free[block]
                self.num_free -= 1
            block.num_holders += 1

    def take(self, num_blocks: int) -> None:
        super().take(num_blocks)
        num_empty = min(num_blocks, self._num_empty)
        self._num_empty -= num_empty
        for _ in range(num_blocks - num_empty):
            block, _ = self._free.popitem(last=False)
            same = self._full[block.name]
            same.remove(block)
            if not same:
                del self._full[block.name]

    def fill(self, names: Iterable[BlockName]) -> list[FullBlock]:
        """Blocks that were taken hold this now, and are found by it."""
        filled = [FullBlock(name) for name in names]
        for block in filled:
            self._full.setdefault(block.name, []).append(block)
        return filled

    def give_back(self, num_blocks: int, full: Sequence[FullBlock] = ()) -> None:
        """By one holder: so many blocks, the full ones of them in the order of the tokens."""
        num_freed = num_blocks - len(full)
        self._num_empty += num_freed
        for block in reversed(full):
            block.num_holders -= 1
            if block.num_holders:
                self.num_shared -= 1
            else:
                self._free[block] = None
                num_freed += 1
        super().give_back(num_freed)


class BlockNames:
    """Names of the blocks of requests: equal where the prompts are equal up to and with the block."""

    def __init__(self, block_size_tokens: int) -> None:
        self._block_size_tokens = block_size_tokens
        self._numbers: dict[tuple[int, tuple[int, ...]], int] = {}  # of the ids after those of another number
        self._of: dict[int, list[int]] = {}

    def of(self, request: ServingRequest, first: int = 0) -> Iterator[BlockName]:
        """From its first one on: of its prompt, then of what it generates, without end. Raises ConfigError for ids
        whose tokens neither divide into blocks nor add up to one."""
        content = request.content
        if content is None:
            return ((request.id, index) for index in count(first))
        size = self._block_size_tokens
        num_shareable = request.prompt_tokens // size
        numbers = self._of.get(request.id)
        if numbers is None:
            numbers = self._of[request.id] = self._numbered(content, num_shareable)
        each = max(1, content.tokens_per_id // size)
        shareable = ((numbers[index // each] * each + index % each) for index in range(first, num_shareable))
        return chain(shareable, ((request.id, index) for index in count(max(first, num_shareable))))

    def _numbered(self, content: PromptContent, num_blocks: int) -> list[int]:
        """A number for every id, or for all ids of a block where a block has several."""
        size, tokens = self._block_size_tokens, content.tokens_per_id
        if size % tokens and tokens % size:
            raise ConfigError(f"ids of {tokens} tokens each; want a multiple or a part of a KV block's {size}")
        each = max(1, size // tokens)
        last = -(-num_blocks * size // tokens)
        numbers, before = [], -1
        for first in range(0, last, each):
            before = self._numbers.setdefault((before, content.ids[first : first + each]), len(self._numbers))
            numbers.append(before)
        return numbers
