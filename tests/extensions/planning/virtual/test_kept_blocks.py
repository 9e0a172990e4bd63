"""What requests hold and what preempted ones left behind, against recounts."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving.runs import BLOCK, capacities, loads, requests

from pytest_npubench.engines.shapes import decoder_shape
from pytest_npubench.errors import MeasurementError
from pytest_npubench.extensions.planning.virtual.calibrated import CalibratedCost
from pytest_npubench.extensions.planning.virtual.held import HeldTokens
from pytest_npubench.extensions.planning.virtual.kept_blocks import KeptBlocks, LeftBlocks
from pytest_npubench.serving.clock import VirtualClock
from pytest_npubench.serving.iteration import IterationPlan, LayerGroup, PrefillRow
from pytest_npubench.serving.load import OpenLoad
from pytest_npubench.serving.loop import serve
from pytest_npubench.serving.request import ServingRequest
from pytest_npubench.serving.result import ServingResult
from pytest_npubench.serving.schedulers import make_scheduler

from .devices import device_of
from .plans import RandomPlans, Recount


def apply(held: HeldTokens, plan: IterationPlan) -> None:
    for request in plan.dropped:
        held.drop(request)
    held.decode(plan.decode)
    for layers in plan.passes:
        for row in layers.prefill:
            held.prefill(row, layers.group)


@given(
    seed=st.integers(0, 10**6),
    num_layers=st.integers(1, 6),
    window=st.sampled_from([None, 1, 7, 20, 1000]),
    new_tuple=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_every_count_is_that_of_a_recount(seed: int, num_layers: int, window: int | None, new_tuple: bool) -> None:
    plans, held, recount = RandomPlans(seed, num_layers), HeldTokens(num_layers, window), Recount(num_layers)
    kept: tuple[int, ...] = ()
    for _ in range(60):
        plan = plans.next()
        if not new_tuple and plan.decode == kept:  # schedulers hand the same tuple on as long as it holds the same
            plan = IterationPlan(decode=kept, passes=plan.passes, finishing=plan.finishing, dropped=plan.dropped)
        kept = plan.decode
        apply(held, plan)
        recount.run(plan)
        assert held.token_layers == recount.token_layers
        assert held.hidden_tokens == recount.hidden_tokens
        assert held.context_tokens == recount.context_tokens(plan.decode)
        assert held.longest_context == max((recount.kv[request][0] for request in plan.decode), default=0)
        if window is not None:
            assert held.window_tokens == recount.context_tokens(plan.decode, window)
        for request in plan.decode:
            assert held.context_of(request) == recount.kv[request][0]
        for request in plans.ended:
            held.drop(request)
            recount.drop(request)
        assert held.token_layers == recount.token_layers
    for request in range(200):
        held.drop(request)
    assert (held.token_layers, held.hidden_tokens, held.context_tokens, held.window_tokens) == (0, 0, 0, 0)


def test_the_docstrings_worked_example() -> None:
    held = HeldTokens(4, None)
    held.decode(())
    held.prefill(PrefillRow(1, 0, 8), LayerGroup(0, 2))
    assert (held.token_layers, held.hidden_tokens) == (16, 8)
    held.decode(())
    held.prefill(PrefillRow(1, 0, 8), LayerGroup(2, 4))
    assert (held.token_layers, held.hidden_tokens) == (32, 0)
    for _ in range(3):
        held.decode((1,))
    assert (held.context_tokens, held.token_layers) == (11, 44)


@pytest.mark.parametrize(
    "ran",
    [
        (),
        ((PrefillRow(7, 0, 5), LayerGroup(0, 2)),),
        ((PrefillRow(7, 0, 5), LayerGroup(2, 4)),),
        ((PrefillRow(7, 0, 5), LayerGroup(0, 4)), (PrefillRow(7, 0, 5), LayerGroup(0, 1))),
    ],
)
def test_decoding_before_each_layer_has_seen_the_prompt_once_is_refused(
    ran: tuple[tuple[PrefillRow, LayerGroup], ...],
) -> None:
    held = HeldTokens(4, 100)
    for row, group in ran:
        held.prefill(row, group)
    with pytest.raises(MeasurementError, match=r"request 7 decodes with .* want its prompt through each of 4 layers"):
        held.decode((7,))


def test_keys_and_values_move_to_another_device_whole() -> None:
    here, there = HeldTokens(4, 10), HeldTokens(4, 10)
    here.prefill(PrefillRow(3, 0, 8), LayerGroup(0, 4))
    there.receive(3, here.context_of(3))
    here.drop(3)
    there.decode((3,))
    assert (here.token_layers, there.token_layers) == (0, 36)
    assert (there.context_tokens, there.window_tokens) == (9, 9)
    with pytest.raises(MeasurementError, match="request 3 has no keys and values"):
        here.context_of(3)


def test_a_batch_that_still_names_a_request_that_has_ended_is_refused() -> None:
    held, batch = HeldTokens(2, None), (1, 2)
    for request in batch:
        held.prefill(PrefillRow(request, 0, 3), LayerGroup(0, 2))
    held.decode(batch)
    held.drop(1)
    with pytest.raises(MeasurementError, match="request 1 decodes with 0 token-layers"):
        held.decode(batch)


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
