"""Blocks that a preempted request left behind, against a queue of block numbers; prompts that begin in the cache."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving.runs import BLOCK, capacities, loads, requests

from pytest_npubench.engines.shapes import decoder_shape
from pytest_npubench.extensions.planning.virtual.calibrated import CalibratedCost
from pytest_npubench.extensions.planning.virtual.kept_blocks import KeptBlocks, LeftBlocks
from pytest_npubench.serving.clock import VirtualClock
from pytest_npubench.serving.load import OpenLoad
from pytest_npubench.serving.loop import serve
from pytest_npubench.serving.request import ServingRequest
from pytest_npubench.serving.result import ServingResult
from pytest_npubench.serving.schedulers import make_scheduler

from .devices import device_of

SHAPE = decoder_shape("mistral-7b-v0.3")
SECOND = CalibratedCost(num_layers=SHAPE.num_layers, fixed_s=1.0, weights_s=0.0, row_s=0.0, context_s=0.0)


def served(
    load: Sequence[ServingRequest], kv_blocks: int, *, policy: str = "chunked", keeps: bool = True, hits: float = 0.0
) -> ServingResult:
    """Iterations of 1 s. The executor raises where a row decodes without its whole prompt in every layer."""
    executor = device_of(SHAPE, SECOND, kv_blocks=kv_blocks, block_size_tokens=BLOCK)
    scheduler = make_scheduler(policy, num_layers=SHAPE.num_layers, kv_blocks=kv_blocks, block_size_tokens=BLOCK)
    scheduler.batch.blocks = KeptBlocks(
        num_blocks=kv_blocks, block_size_tokens=BLOCK, keeps_preempted=keeps, prefix_hit_fraction=hits
    )
    return serve(OpenLoad(load), scheduler, executor, VirtualClock())


def prefilled(result: ServingResult) -> int:
    return sum(
        tokens * layers // SHAPE.num_layers
        for tokens, layers in zip(result.log.num_prefill_tokens, result.log.num_prefill_layers, strict=True)
    )


@given(
    num_free=st.integers(0, 6),
    num_full=st.integers(0, 6),
    num_partial=st.integers(0, 2),
    num_freed_later=st.integers(0, 4),
    num_taken=st.integers(0, 20),
)
def test_what_is_left_is_what_a_queue_of_blocks_says(
    num_free: int, num_full: int, num_partial: int, num_freed_later: int, num_taken: int
) -> None:
    own = [("own", place) for place in range(num_full + num_partial)]
    queue = deque([*(("free", place) for place in range(num_free)), *reversed(own)])
    queue.extend(("later", place) for place in range(num_freed_later))
    for _ in range(min(num_taken, len(queue))):
        queue.popleft()
    there = sum(block in queue for block in own[:num_full])
    kept = LeftBlocks(num_full=num_full, num_freed=num_full + num_partial, num_taken_before=num_free)
    assert kept.num_left(min(num_taken, num_free + len(own) + num_freed_later)) == there


def test_a_preempted_request_prefills_what_was_taken_from_it() -> None:
    """Six blocks of 4. Two prompts of 8 hold two blocks each, and a third one each after their first token. Request 0
    fills its three after token 5 and needs a fourth: request 1, 12 tokens long by then, is preempted, and of its three
    blocks the last one is taken. Request 0 ends two tokens later. Request 1 has 13 tokens to prefill, 8 are there."""
    load = requests((0.0, 8, 8), (0.0, 8, 8))
    kept, gone = served(load, 6), served(load, 6, keeps=False)
    assert [record.num_preemptions for record in kept.records] == [0, 1]
    assert prefilled(gone) == 8 + 8 + 13
    assert prefilled(kept) == 8 + 8 + 13 - 8


@pytest.mark.parametrize("policy", ["chunked", "layered", "hybrid", "continuous"])
@given(data=st.data(), load=loads())
def test_every_request_ends_and_no_more_is_prefilled(
    policy: str, data: st.DataObject, load: list[ServingRequest]
) -> None:
    kv_blocks = data.draw(capacities(load))
    kept, gone = served(load, kv_blocks, policy=policy), served(load, kv_blocks, policy=policy, keeps=False)
    for record, request in zip(kept.records, load, strict=True):
        assert len(record.token_times_s) == request.output_tokens
    if not any(record.num_preemptions for record in gone.records):
        assert prefilled(kept) == prefilled(gone) == sum(request.prompt_tokens for request in load)


@pytest.mark.parametrize("policy", ["chunked", "layered"])
def test_a_part_of_each_prompt_is_found(policy: str) -> None:
    """Half of 30 tokens is 3 whole blocks of 4; of a prompt of 4 all but the last token may be, which is no block."""
    load = requests((0.0, 30, 3), (9.0, 4, 3))
    assert prefilled(served(load, 60, policy=policy, hits=0.5)) == 18 + 4
    assert prefilled(served(load, 60, policy=policy, hits=1.0)) == 2 + 4
