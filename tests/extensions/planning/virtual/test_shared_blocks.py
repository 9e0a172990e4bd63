"""Prompts that share their beginnings, against a plain pool of blocks and against what prompts have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving.runs import BLOCK, ONE_DEVICE, capacities, fewest_blocks, policies, requests

from pytest_npubench.engines.shapes import decoder_shape
from pytest_npubench.errors import ConfigError, WorkloadError
from pytest_npubench.extensions.planning.replicas import Replica, SimulatedResult, serve_replicas
from pytest_npubench.extensions.planning.virtual.calibrated import CalibratedCost
from pytest_npubench.extensions.planning.virtual.shared_blocks import BlockNames, FullBlock, SharedBlocks
from pytest_npubench.serving.request import PromptContent, ServingRequest
from pytest_npubench.serving.result import ServingResult
from pytest_npubench.serving.schedulers import make_scheduler

from .devices import device_of

SHAPE = decoder_shape("mistral-7b-v0.3")
SECOND = CalibratedCost(num_layers=SHAPE.num_layers, fixed_s=1.0, weights_s=0.0, row_s=0.0, context_s=0.0)


def parts(load: Sequence[ServingRequest], kv_blocks: int, policy: str, **settings: object):
    executor = device_of(SHAPE, SECOND, kv_blocks=kv_blocks, block_size_tokens=BLOCK)
    scheduler = make_scheduler(
        policy, num_layers=SHAPE.num_layers, kv_blocks=kv_blocks, block_size_tokens=BLOCK, **settings
    )
    executor.share_prefixes(scheduler.batch)
    return scheduler, executor


def served(
    load: Sequence[ServingRequest], kv_blocks: int, policy: str = "chunked", **settings: object
) -> tuple[SimulatedResult, SharedBlocks]:
    """Iterations of 1 s; the executor raises for keys and values over its capacity, or a decode without its prompt."""
    replica = Replica(*parts(load, kv_blocks, policy, **settings))
    return serve_replicas(load, [replica]), replica.scheduler.batch.blocks


def prefilled(result: ServingResult) -> int:
    tokens = zip(result.log.num_prefill_tokens, result.log.num_prefill_layers, strict=True)
    return sum(number * layers for number, layers in tokens) // SHAPE.num_layers


def with_content(load: Sequence[ServingRequest], ids: Sequence[Sequence[int]], tokens_per_id: int = 1):
    return [replace(one, content=PromptContent(tuple(of), tokens_per_id)) for one, of in zip(load, ids, strict=True)]


@st.composite
def alike(draw: st.DrawFn, *, apart_s: float | None = None) -> list[ServingRequest]:
    """Prompts of few different tokens, so that many begin alike; as far apart as that, or close together."""
    prompts = draw(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=14), min_size=1, max_size=8))
    prompts = [[token for token in prompt for _ in range(2)] for prompt in prompts]
    gaps = st.sampled_from([0.0, 0.3, 1.0, 4.0, 30.0])
    now_s, rows = 0.0, []
    for prompt in prompts:
        now_s += draw(gaps) if apart_s is None else apart_s
        rows.append((now_s, len(prompt), draw(st.integers(1, 8))))
    return with_content(requests(*rows), prompts)


@dataclass
class Block:
    """Of the plain pool: what it holds, by the tokens up to its end, and who holds it."""

    content: object = None
    holders: int = 0
    filled_at: int = 0


@dataclass
class PlainPool:
    """A list of blocks and a list of those that are free, in the order in which they are taken."""

    blocks: list[Block]
    free: list[Block] = field(default_factory=list)

    def find(self, names: Sequence[object]) -> list[Block]:
        found = []
        for name in names:
            there = [block for block in self.blocks if block.content == name]
            if not there:
                break
            found.append(min(there, key=lambda block: block.filled_at))
        return found

    def hold(self, found: Sequence[Block]) -> None:
        for block in found:
            if block in self.free:
                self.free = [one for one in self.free if one is not block]
            block.holders += 1

    def take(self, number: int) -> list[Block]:
        taken, self.free = self.free[:number], self.free[number:]
        for block in taken:
            block.content, block.holders = None, 1
        return taken

    def give_back(self, held: Sequence[Block]) -> None:
        for block in held:
            block.holders -= 1
        for block in reversed(held):
            if not block.holders:
                self.free.insert(0, block) if block.content is None else self.free.append(block)


@given(data=st.data(), num_blocks=st.integers(1, 12))
def test_the_pool_is_a_list_of_blocks(data: st.DataObject, num_blocks: int) -> None:
    ours = SharedBlocks(num_blocks=num_blocks, block_size_tokens=BLOCK)
    plain = PlainPool([Block() for _ in range(num_blocks)])
    plain.free = list(plain.blocks)
    held: list[tuple[list[FullBlock], int, list[Block]]] = []
    filled = count()
    for _ in range(data.draw(st.integers(1, 12))):
        if held and data.draw(st.booleans()):
            names, number, blocks = held.pop(data.draw(st.integers(0, len(held) - 1)))
            ours.give_back(number, names)
            plain.give_back(blocks)
        else:
            # names of a chain: a number says what it holds and what stands before it
            chain = data.draw(st.sampled_from([[1, 2, 3, 4], [1, 2, 5], [6, 7], [8]]))
            found = ours.find(chain)
            same = plain.find(chain)
            assert len(found) == len(same)
            wanted = len(chain) + data.draw(st.integers(0, 2))
            enough = len(plain.free) >= wanted - sum(block.holders > 0 for block in same)
            assert (ours.num_new(wanted, found) <= ours.num_free) == enough
            if enough:
                ours.hold(found)
                plain.hold(same)
                ours.take(wanted - len(found))
                taken = plain.take(wanted - len(same))
                num_full = data.draw(st.integers(len(found), len(chain)))
                new = ours.fill(chain[len(found) : num_full])
                for block, name in zip(taken, chain[len(found) : num_full], strict=False):
                    block.content, block.filled_at = name, next(filled)
                held.append((found + new, wanted, [*same, *taken]))
        assert ours.num_free == len(plain.free)
        assert ours.num_shared == sum(max(0, block.holders - 1) for block in plain.blocks)


@given(load=alike(apart_s=1000.0), policy=st.sampled_from(ONE_DEVICE))
def test_with_room_for_all_a_prompt_finds_the_longest_beginning_it_has_in_common(
    load: list[ServingRequest], policy: str
) -> None:
    result, _ = served(load, 500, policy)
    found = 0
    for place, one in enumerate(load):
        assert one.content is not None
        ids = one.content.ids
        common = 0
        for other in load[:place]:
            assert other.content is not None
            both = list(zip(ids, other.content.ids, strict=False))
            common = max(common, next((at for at, (a, b) in enumerate(both) if a != b), len(both)))
        found += min(common, len(ids) - 1) // BLOCK * BLOCK
    assert result.num_cached_tokens == found
    assert prefilled(result) == sum(one.prompt_tokens for one in load) - found


@given(data=st.data(), load=alike())
def test_whatever_the_policy_and_the_capacity_all_end_and_nothing_stays_held(
    data: st.DataObject, load: list[ServingRequest]
) -> None:
    kv_blocks = data.draw(capacities(load))
    policy, settings = data.draw(policies(SHAPE.num_layers))
    result, blocks = served(load, kv_blocks, policy, **settings)
    for record, request in zip(result.records, load, strict=True):
        assert len(record.token_times_s) == request.output_tokens
    assert blocks.num_free == kv_blocks
    assert blocks.num_shared == 0
    kept = SHAPE.kv_bytes_per_token(2) * kv_blocks * BLOCK
    assert max(result.log.kv_bytes) <= kept


@given(data=st.data(), load=alike())
def test_replicas_end_all_and_count_what_each_has_found(data: st.DataObject, load: list[ServingRequest]) -> None:
    kv_blocks = data.draw(capacities(load))
    replicas = [Replica(*parts(load, kv_blocks, "chunked")) for _ in range(2)]
    result = serve_replicas(load, replicas)
    assert [len(record.token_times_s) for record in result.records] == [one.output_tokens for one in load]
    assert result.num_cached_tokens == sum(one.num_cached_tokens for one in replicas)


def test_two_at_once_hold_a_common_beginning_once() -> None:
    """Prompts of 12 tokens, 8 in common, one after the other in flight; each takes a fourth block for its output. The
    second finds 2 of its 3 blocks and holds them with the first: 8 blocks of which 2 are shared fit 6."""
    load = with_content(requests((0.0, 12, 4), (1.5, 12, 4)), [[1] * 12, [1] * 8 + [2] * 4])
    result, _ = served(load, 6)
    assert result.num_cached_tokens == 8
    assert max(record.num_preemptions for record in result.records) == 0
    assert max(result.log.kv_bytes) <= SHAPE.kv_bytes_per_token(2) * 6 * BLOCK


def test_the_longest_freed_is_taken_first_and_the_end_of_a_prompt_before_its_beginning() -> None:
    """Room for 4 blocks. A (8 tokens) and B (8) end; C takes two blocks for its 8 tokens, those that were freed first:
    A's second and first. B's are there, A's are gone."""
    a, b, c = [1] * 8, [2] * 8, [3] * 8
    rows = [(0.0, 8, 1), (10.0, 8, 1), (20.0, 8, 1), (30.0, 8, 1)]
    assert (
        served(with_content(requests(*rows), [a, b, c, b]), 4)[0].num_cached_tokens == 4
    )  # its last token is computed
    assert served(with_content(requests(*rows), [a, b, c, a]), 4)[0].num_cached_tokens == 0


def test_a_preempted_request_finds_what_it_had_generated() -> None:
    """As in test_kept_blocks: request 1 comes back with 13 tokens, and 8 of them are there."""
    load = with_content(requests((0.0, 8, 8), (0.0, 8, 8)), [[1] * 8, [2] * 8])
    result, _ = served(load, 6)
    assert [record.num_preemptions for record in result.records] == [0, 1]
    assert prefilled(result) == 8 + 8 + 13 - 8


def names(request: ServingRequest, of: BlockNames, number: int) -> list[object]:
    return list(islice(of.of(request), number))


@pytest.mark.parametrize("tokens_per_id", [1, 2, 4, 8, 12])
def test_blocks_have_one_name_where_all_up_to_them_is_the_same(tokens_per_id: int) -> None:
    tokens = 24
    number = -(-tokens // tokens_per_id)
    first, second = requests((0.0, tokens, 1), (0.0, tokens, 1))
    same = list(range(number))
    other = [*same[:-1], 99]
    one, two = with_content([first, second], [same, other], tokens_per_id)
    of = BlockNames(BLOCK)
    alike_blocks = (number - 1) * tokens_per_id // BLOCK
    left, right = names(one, of, 6), names(two, of, 6)
    assert left[:alike_blocks] == right[:alike_blocks]
    assert not set(left[alike_blocks:]) & set(right[alike_blocks:])
    assert len(set(left)) == 6
    assert names(one, of, 9)[6:] == [(0, 6), (0, 7), (0, 8)]  # what it generates is its own
    for first in range(9):
        assert list(islice(of.of(one, first), 2)) == names(one, of, first + 2)[first:]


def test_what_cannot_be() -> None:
    with pytest.raises(WorkloadError, match=r"request 0: 3 ids of 4 tokens each are not those of 8 prompt tokens"):
        with_content(requests((0.0, 8, 1)), [[1, 2, 3]], 4)
    load = with_content(requests((0.0, 9, 1)), [[1, 2, 3]], 3)
    with pytest.raises(ConfigError, match=r"ids of 3 tokens each; want a multiple or a part of a KV block's 4"):
        served(load, fewest_blocks(load))
