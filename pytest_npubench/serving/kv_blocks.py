"""The KV cache of a device as a count of blocks, and as blocks that several requests share.

Which block a token's keys and values lie in is the executor's business; planning needs to know whether there is one,
and, where prompts share their beginnings, what the blocks hold.

    free     taken first where they hold nothing, then in the order in which they were freed: what they hold is gone
    found    held by one more request, wherever the block was

Blocks of a request are freed from its last one on, so that the beginning of its prompt stays longest (vLLM's prefix
cache). Only full blocks are found.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count, takewhile

from pytest_npubench.errors import ConfigError
from pytest_npubench.serving.request import PromptContent, ServingRequest

BlockName = int | tuple[int, int]
"""Of what a block and those before it hold: a number where others may hold the same, else (request, place)."""


class KvBlocks:
    """The paged KV cache as a count: free blocks out of `num_blocks`. Raises ConfigError for a size below 1.

    A prompt of P tokens that generates n keeps at most P + n - 1 tokens: the last one is never fed back.

    Worked number: 100 tokens in blocks of 16 hold ceil(100 / 16) = 7 blocks (Kwon et al. 2023, section 4.1).
    """

    __slots__ = ("_num_back", "block_size_tokens", "num_blocks", "num_free")

    def __init__(self, *, num_blocks: int, block_size_tokens: int) -> None:
        for name, value in (("kv_blocks", num_blocks), ("block_size_tokens", block_size_tokens)):
            if value < 1:
                raise ConfigError(f"{name} is {value}; want at least 1")
        self.num_blocks = num_blocks
        self.block_size_tokens = block_size_tokens
        self.num_free = num_blocks
        self._num_back = 0  # ever given back, less those that were found

    @property
    def capacity_tokens(self) -> int:
        return self.num_blocks * self.block_size_tokens

    @property
    def num_taken(self) -> int:
        """Ever, in the order in which they were freed: found ones, which are wherever they stand, do not count."""
        return self.num_blocks - self.num_free + self._num_back

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size_tokens)

    def take(self, num_blocks: int, *, num_found: int = 0) -> None:
        """num_found of them hold what is wanted, wherever they stand."""
        self.num_free = num_free = self.num_free - num_blocks
        assert num_free >= 0
        if num_found:
            self._num_back -= num_found

    def give_back(self, num_blocks: int) -> None:
        self.num_free += num_blocks
        self._num_back += num_blocks
        assert self.num_free <= self.num_blocks


@dataclass(slots=True, eq=False)
class FullBlock:
    """A block that is full, what it holds, and how many requests hold it."""

    name: BlockName
    num_holders: int = 1


class SharedBlocks(KvBlocks):
    """KvBlocks that are found by what they hold. `num_shared` are holders beyond the first, over all blocks.

    Where two requests filled a block each with the same, the one that was filled first is found while it is there.

    Worked number: a prompt of two blocks that two requests hold and a third one has freed is held twice: num_shared is
    2, and once both have ended its blocks are the last in the queue, the second one of them first.
    """

    __slots__ = ("_empty", "_free", "_full", "num_shared")

    def __init__(self, *, num_blocks: int, block_size_tokens: int) -> None:
        super().__init__(num_blocks=num_blocks, block_size_tokens=block_size_tokens)
        self._full: dict[BlockName, list[FullBlock]] = {}
        self._free: OrderedDict[FullBlock, None] = OrderedDict()
        self._empty = num_blocks  # of the free ones
        self.num_shared = 0

    def find(self, names: Iterable[BlockName]) -> list[FullBlock]:
        """A block for as many of them, from the first on, as are there."""
        return [self._full[name][0] for name in takewhile(self._full.__contains__, names)]

    def num_free_wanted(self, num_blocks: int, found: Sequence[FullBlock]) -> int:
        """Of the free blocks, how many so many blocks need, of which some were found: with a holder, or free."""
        return num_blocks - sum(block.num_holders > 0 for block in found)

    def hold(self, found: Iterable[FullBlock]) -> None:
        for block in found:
            if block.num_holders:
                self.num_shared += 1
            else:
                del self._free[block]
                self.num_free -= 1
            block.num_holders += 1

    def take(self, num_blocks: int, *, num_found: int = 0) -> None:
        super().take(num_blocks, num_found=num_found)
        num_empty = min(num_blocks, self._empty)
        self._empty -= num_empty
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
        self._empty += num_freed
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
            return ((request.id, place) for place in count(first))
        size = self._block_size_tokens
        num_shareable = request.prompt_tokens // size
        numbers = self._of.get(request.id)
        if numbers is None:
            numbers = self._of[request.id] = self._numbered(content, num_shareable)
        each = max(1, content.tokens_per_id // size)
        shareable = ((numbers[place // each] * each + place % each) for place in range(first, num_shareable))
        return chain(shareable, ((request.id, place) for place in count(max(first, num_shareable))))

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
