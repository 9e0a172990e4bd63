"""What requests hold, kept by differences, against a recount of every token in every layer."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_npubench.errors import MeasurementError
from pytest_npubench.extensions.planning.virtual.held import HeldTokens
from pytest_npubench.serving.iteration import IterationPlan, LayerGroup, PrefillRow

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
