"""Tokens, counters and what is held, whichever way plans cut the work."""

from __future__ import annotations

from functools import cache
from random import Random
from time import perf_counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="torch is not installed")

from pytest_npubench.engines.torch_moe import TorchExecutor  # noqa: E402
from pytest_npubench.engines.torch_moe import executor as executor_module  # noqa: E402
from pytest_npubench.serving.iteration import IterationPlan, LayerGroup, LayerPass, PrefillRow  # noqa: E402

from .driving import Ran, drive, whole  # noqa: E402
from .small_shapes import GPT_OSS, QWEN_DENSE, QWEN_MOE, SHAPES  # noqa: E402

LENGTHS = {3: (1, 4), 8: (19, 5), 11: (33, 3), 12: (10, 6)}
BLOCK_SIZE = 4


@cache
def engine(name: str) -> Any:
    shape = next(shape for shape in SHAPES if shape.name == name)
    return TorchExecutor(shape, kv_capacity_tokens=160, block_size_tokens=BLOCK_SIZE, seed=2)


@cache
def alone(name: str) -> dict[int, list[int]]:
    return {request: whole(engine(name), request, *pair) for request, pair in LENGTHS.items()}


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
@settings(max_examples=10, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10_000))
def test_tokens_do_not_depend_on_the_plans(shape: Any, seed: int) -> None:
    tokens, ran = drive(engine(shape.name), LENGTHS, Random(seed))
    assert tokens == alone(shape.name)
    assert ran[-1].outcome.hidden_bytes == 0


def test_torch_s_math_attention_gives_the_same_tokens() -> None:
    """Its results of a prompt lie in memory in another order than those of the flash backend."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    name = QWEN_DENSE.name
    with sdpa_kernel(SDPBackend.MATH):
        assert whole(engine(name), 8, *LENGTHS[8]) == alone(name)[8]


def test_tokens_are_not_all_the_same() -> None:
    """Else the property above says little."""
    for shape in SHAPES:
        assert len({token for tokens in alone(shape.name).values() for token in tokens}) > 5


@pytest.mark.parametrize("shape", [QWEN_MOE, GPT_OSS], ids=lambda shape: shape.name)
def test_activations_are_the_union_over_rows(shape: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recounted with sets from what the router chose, row by row, in another run that takes every request alone."""
    chosen = _choices_alone(shape, monkeypatch)
    _, ran = drive(engine(shape.name), LENGTHS, Random(7))
    assert any(item.plan.dropped for item in ran)
    assert any(len(item.plan.decode) > 1 and item.plan.num_prefill_tokens for item in ran)
    for item in ran:
        expected = _recount(item, chosen)
        assert item.outcome.expert_activations == expected
        assert item.outcome.padded_expert_activations == expected
        assert item.outcome.expert_load_bytes == expected * 3 * shape.hidden * shape.intermediate * 4


def _choices_alone(shape: Any, monkeypatch: pytest.MonkeyPatch) -> dict[tuple[int, int, int], set[int]]:
    """Experts by (layer, request, position)."""
    chosen: dict[tuple[int, int, int], set[int]] = {}
    here: dict[str, Any] = {}

    def spy(model: Any, first: int, stop: int, hidden: Any, inputs: Any, kv: Any) -> Any:
        left, experts = run_layers(model, first, stop, hidden, inputs, kv)
        for layer in range(first, stop):
            for position, row in zip(inputs.batch.positions.tolist(), experts[layer - first].tolist(), strict=True):
                chosen[layer, here["request"], position] = set(row)
        return left, experts

    run_layers = executor_module.MoeModel.run_layers
    with monkeypatch.context() as patch:
        patch.setattr(executor_module.MoeModel, "run_layers", spy)
        for request, pair in LENGTHS.items():
            here["request"] = request
            whole(engine(shape.name), request, *pair)
    return chosen


def _recount(item: Ran, chosen: dict[tuple[int, int, int], set[int]]) -> int:
    total = 0
    for (first, stop), rows in item.plan.passes:
        for layer in range(first, stop):
            active: set[int] = set()
            for request, position in zip(item.plan.decode, item.decode_positions, strict=True):
                active |= chosen[layer, request, position]
            for request, start, count in rows:
                for position in range(start, start + count):
                    active |= chosen[layer, request, position]
            total += len(active)
    return total


def test_a_dense_decoder_activates_no_expert() -> None:
    _, ran = drive(engine(QWEN_DENSE.name), LENGTHS, Random(1))
    assert {(item.outcome.expert_activations, item.outcome.expert_load_bytes) for item in ran} == {(0, 0)}


def test_one_prompt_alone_loads_as_much_in_layer_groups_as_in_one_piece() -> None:
    one = _prefill(QWEN_MOE, [(0, 5)], [33])
    groups = _prefill(QWEN_MOE, [(0, 2), (2, 3), (3, 5)], [33])
    chunks = _prefill(QWEN_MOE, [(0, 5)], [11, 11, 11])
    assert one == groups
    assert chunks > one


def _prefill(shape: Any, groups: list[tuple[int, int]], chunks: list[int]) -> int:
    """Activations of prompt 11, a group an iteration, chunk by chunk."""
    served = engine(shape.name)
    served.begin(11, 33, 1)
    total, first = 0, 0
    for count in chunks:
        for group in groups:
            finishing = (11,) if group[1] == shape.num_layers and first + count == 33 else ()
            rows = (PrefillRow(11, first, count),)
            plan = IterationPlan(passes=(LayerPass(LayerGroup(*group), rows),), finishing=finishing)
            total += served.run(plan).expert_activations
        first += count
    served.end(11)
    return total


def test_padding_rows_cost_but_never_count() -> None:
    served = engine(QWEN_MOE.name)
    layers = LayerPass(LayerGroup(0, QWEN_MOE.num_layers))
    whole(served, 8, 19, 3)
    outcomes = []
    for num_padding_rows in (0, 6):
        served.begin(12, 10, 2)
        prompt = layers._replace(prefill=(PrefillRow(12, 0, 10),))
        served.run(IterationPlan(passes=(prompt,), finishing=(12,)))
        outcomes.append(served.run(IterationPlan(decode=(12,), passes=(layers,), num_padding_rows=num_padding_rows)))
        served.end(12)
    bare, padded = outcomes
    assert bare.tokens == padded.tokens
    assert bare.kv_bytes == padded.kv_bytes
    assert bare.expert_activations == padded.expert_activations == QWEN_MOE.num_layers * QWEN_MOE.experts_per_token
    assert bare.padded_expert_activations == bare.expert_activations
    assert padded.padded_expert_activations > padded.expert_activations
    assert padded.expert_load_bytes == bare.expert_load_bytes


def test_padding_rows_leave_the_cache_alone() -> None:
    """Decoding goes on as if there had been none."""
    served = engine(GPT_OSS.name)
    layers = LayerPass(LayerGroup(0, GPT_OSS.num_layers))
    served.begin(8, 19, 5)
    prompt = layers._replace(prefill=(PrefillRow(8, 0, 19),))
    tokens = [served.run(IterationPlan(passes=(prompt,), finishing=(8,))).tokens[8]]
    while len(tokens) < 5:
        plan = IterationPlan(decode=(8,), passes=(layers,), num_padding_rows=3)
        tokens.append(served.run(plan).tokens[8])
    served.end(8)
    assert tokens == alone(GPT_OSS.name)[8]


@pytest.mark.parametrize("leave", ["end", "drop"])
def test_what_a_request_holds_is_freed(leave: str) -> None:
    """Half way through its layers a prompt holds blocks and hidden states; ended or dropped, nothing."""
    served = engine(QWEN_MOE.name)
    served.begin(8, 19, 5)
    low = LayerPass(LayerGroup(0, 2), (PrefillRow(8, 0, 19),))
    half = served.run(IterationPlan(passes=(low,)))
    assert half.hidden_bytes == 19 * QWEN_MOE.hidden * 4
    # 19 tokens in blocks of 4, all layers' keys and values
    assert half.kv_bytes == 20 * 2 * QWEN_MOE.num_layers * QWEN_MOE.num_kv_heads * QWEN_MOE.head_dim * 4
    if leave == "end":
        served.end(8)
        after = served.run(IterationPlan())
    else:
        after = served.run(IterationPlan(dropped=(8,)))
        served.end(8)
    assert (after.hidden_bytes, after.kv_bytes) == (0, 0)


def test_an_empty_iteration_gives_nothing() -> None:
    outcome = engine(QWEN_MOE.name).run(IterationPlan())
    assert (outcome.tokens, outcome.expert_activations, outcome.duration_s) == ({}, 0, None)


def test_prompts_are_those_of_seed_and_request() -> None:
    served = engine(QWEN_MOE.name)
    other = TorchExecutor(QWEN_DENSE, kv_capacity_tokens=16, seed=2)
    assert served.prompts(8, 19) == other.prompts(8, 19)
    assert served.prompts(8, 19) != served.prompts(9, 19)
    assert TorchExecutor(QWEN_DENSE, kv_capacity_tokens=16, seed=3).prompts(8, 19) != served.prompts(8, 19)
    assert served.prompts(8, 19)[:5] == served.prompts(8, 5)


def test_the_hosts_part_of_an_iteration_is_told_where_the_device_computes_beside_it() -> None:
    """On a CPU, where kernels run in the call, nothing is told; asked all the same, it is less than the iteration."""
    served, layers = TorchExecutor(QWEN_MOE, kv_capacity_tokens=64, block_size_tokens=4), QWEN_MOE.num_layers
    served.begin(1, 9, 2)
    prompt = LayerPass(LayerGroup(0, layers), (PrefillRow(1, 0, 9),))
    assert served.run(IterationPlan(passes=(prompt,), finishing=(1,))).host_s is None
    served._tells_host = True
    started_s = perf_counter()
    host_s = served.run(IterationPlan(decode=(1,), passes=(LayerPass(LayerGroup(0, layers)),))).host_s
    assert host_s is not None
    assert 0 < host_s < perf_counter() - started_s
