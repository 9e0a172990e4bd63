"""The virtual executor: bytes and activations against recounts, seconds against the cost model, and its refusals."""

from __future__ import annotations

import inspect

import pytest

from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.engines.shapes import decoder_shape
from pytest_npubench.errors import ConfigError, MeasurementError
from pytest_npubench.extensions.planning.virtual.cost import cost_model
from pytest_npubench.extensions.planning.virtual.executor import VirtualExecutor
from pytest_npubench.serving.iteration import Executor, IterationPlan, LayerGroup, LayerPass, PrefillRow
from pytest_npubench.suites.hardware_files import load_all

from .pass_costs import pass_cost
from .plans import RandomPlans, Recount

SPECS = load_all([default_directory()])


def executor(model: str = "small-moe", *, capacity: int = 100_000, seed: int = 0, devices: int = 1) -> VirtualExecutor:
    return VirtualExecutor(
        decoder_shape(model),
        SPECS["nvidia-h100"],
        tensor_parallel=devices,
        dtype="bf16",
        kv_capacity_tokens=capacity,
        seed=seed,
    )


def whole(request: int, num_tokens: int, num_layers: int) -> IterationPlan:
    """One prompt in one iteration."""
    row = PrefillRow(request, 0, num_tokens)
    return IterationPlan(passes=(LayerPass(LayerGroup(0, num_layers), (row,)),), finishing=(request,))


def decode_only(num_layers: int, *requests: int, padding: int = 0) -> IterationPlan:
    passes = (LayerPass(LayerGroup(0, num_layers)),)
    return IterationPlan(decode=requests, passes=passes, num_padding_rows=padding)


def test_it_has_what_an_executor_has() -> None:
    made = executor()
    for name, wanted in inspect.getmembers(Executor, inspect.isfunction):
        if not name.startswith("_"):
            assert (
                list(inspect.signature(getattr(made, name)).parameters)
                == list(inspect.signature(wanted).parameters)[1:]
            )
    assert (made.num_layers, made.kv_capacity_tokens, made.block_size_tokens) == (8, 100_000, 16)


@pytest.mark.parametrize("model", ["small-moe", "small-dense", "small-gpt-oss"])
def test_bytes_of_random_plans_are_those_of_a_recount(model: str) -> None:
    shape = decoder_shape(model)
    made, plans, recount = executor(model), RandomPlans(5, shape.num_layers), Recount(shape.num_layers)
    for _ in range(150):
        plan = plans.next()
        outcome = made.run(plan)
        recount.run(plan)
        layer_bytes = 2 * shape.num_kv_heads * shape.head_dim * 2
        assert outcome.kv_bytes == recount.token_layers * layer_bytes
        assert outcome.hidden_bytes == recount.hidden_tokens * 2 * shape.hidden * 2
        assert outcome.duration_s is not None
        assert outcome.duration_s > 0
        assert outcome.energy_j is None
        assert not outcome.tokens
        num_active = sum(layers.group.num_layers for layers in plan.passes) * shape.num_experts
        assert outcome.expert_activations <= num_active
        assert outcome.expert_load_bytes == outcome.expert_activations * shape.expert_bytes(2)
        for request in plans.ended:
            made.end(request)
            recount.drop(request)


def test_seconds_are_those_of_the_cost_model_with_the_recounted_work() -> None:
    """gpt-oss: in layers 0 and 2 a window of 64 hides the beginning of the first request's 101 tokens."""
    shape = decoder_shape("small-gpt-oss")
    made = executor("small-gpt-oss")
    made.run(whole(1, 100, 4))
    made.run(whole(2, 29, 4))
    plan = IterationPlan(
        decode=(1, 2),
        passes=(LayerPass(LayerGroup(0, 1)), LayerPass(LayerGroup(1, 4), (PrefillRow(3, 0, 50),))),
    )
    outcome = made.run(plan)
    costs = cost_model(shape, SPECS["nvidia-h100"], tensor_parallel=1, dtype="bf16")
    router = made._router
    assert router is not None
    decode = {"decode_rows": 2, "context_tokens": 101 + 30, "window_tokens": 64 + 30}
    alone = pass_cost(costs, 0, 1, **decode, prefill=(), activations=router.activations(3, 0, 1, 2, ()))
    both = pass_cost(
        costs,
        1,
        4,
        **decode,
        prefill=(PrefillRow(3, 0, 50),),
        activations=router.activations(3, 1, 4, 2, (PrefillRow(3, 0, 50),)),
    )
    wanted = costs.iteration_s + alone.total_s + both.total_s + costs.sampling_s(2)
    assert outcome.duration_s == pytest.approx(wanted, rel=1e-12)


def test_the_docstrings_worked_example() -> None:
    made = executor("qwen3-30b-a3b", capacity=843_000, devices=2)
    made.run(whole(1, 10, 48))
    outcome = made.run(decode_only(48, 1))
    assert outcome.expert_activations == 384
    assert outcome.expert_load_bytes == pytest.approx(3.62e9, rel=0.002)
    assert outcome.kv_bytes == 11 * 98_304


def test_a_prompt_alone_loads_as_much_in_layer_groups_as_in_one_shot() -> None:
    """Layered Prefill, section 4.1: each layer once. In chunks it loads more."""
    one_shot = executor().run(whole(1, 300, 8)).expert_activations
    layered, chunked = executor(), executor()
    in_groups = [
        layered.run(IterationPlan(passes=(LayerPass(LayerGroup(first, first + 2), (PrefillRow(1, 0, 300),)),)))
        for first in (0, 2, 4, 6)
    ]
    in_chunks = [
        chunked.run(IterationPlan(passes=(LayerPass(LayerGroup(0, 8), (PrefillRow(1, first, 100),)),)))
        for first in (0, 100, 200)
    ]
    assert sum(outcome.expert_activations for outcome in in_groups) == one_shot
    assert sum(outcome.expert_activations for outcome in in_chunks) > 2 * one_shot
    assert [outcome.hidden_bytes for outcome in in_groups] == [300 * 2 * 512 * 2] * 3 + [0]


def test_rows_together_activate_at_most_what_they_do_apart() -> None:
    apart, together = executor(), executor()
    apart.run(whole(1, 40, 8))
    together.run(whole(1, 40, 8))
    alone = apart.run(decode_only(8, 1)).expert_activations
    prompt = apart.run(whole(2, 40, 8)).expert_activations
    row = PrefillRow(2, 0, 40)
    plan = IterationPlan(decode=(1,), passes=(LayerPass(LayerGroup(0, 8), (row,)),), finishing=(2,))
    both = together.run(plan).expert_activations
    assert prompt <= both <= alone + prompt


def test_padding_rows_cost_time_and_never_count() -> None:
    plain, padded = executor(), executor()
    for made in (plain, padded):
        made.run(whole(1, 500, 8))
        made.run(whole(2, 500, 8))
    without, with_rows = plain.run(decode_only(8, 1, 2)), padded.run(decode_only(8, 1, 2, padding=6))
    assert with_rows.expert_activations == without.expert_activations == without.padded_expert_activations
    assert with_rows.expert_load_bytes == without.expert_load_bytes
    assert with_rows.padded_expert_activations > with_rows.expert_activations
    assert with_rows.duration_s is not None
    assert without.duration_s is not None
    assert with_rows.duration_s > without.duration_s


def test_a_dense_decoder_loads_no_experts() -> None:
    made = executor("small-dense")
    outcome = made.run(whole(1, 100, 8))
    assert (outcome.expert_activations, outcome.padded_expert_activations, outcome.expert_load_bytes) == (0, 0, 0)
    assert outcome.duration_s


def test_one_seed_is_one_run() -> None:
    def activations(seed: int) -> list[int]:
        made = executor(seed=seed)
        made.run(whole(1, 20, 8))
        return [made.run(decode_only(8, 1)).expert_activations + made.run(whole(2, 9, 8)).expert_activations]

    assert activations(3) == activations(3)
    assert [activations(seed) for seed in range(4)] != [activations(0)] * 4


def test_what_is_dropped_or_ended_frees_everything() -> None:
    made = executor()
    made.run(IterationPlan(passes=(LayerPass(LayerGroup(0, 3), (PrefillRow(1, 0, 10), PrefillRow(2, 0, 20))),)))
    outcome = made.run(IterationPlan(dropped=(1,)))
    assert outcome.kv_bytes == 20 * 3 * 2 * 2 * 64 * 2
    assert outcome.hidden_bytes == 20 * 2 * 512 * 2
    made.end(2)
    outcome = made.run(IterationPlan())
    assert (outcome.kv_bytes, outcome.hidden_bytes) == (0, 0)


def test_more_tokens_than_the_device_holds_are_refused() -> None:
    made = executor(capacity=64)
    made.run(whole(1, 60, 8))
    for _ in range(4):
        made.run(decode_only(8, 1))
    with pytest.raises(MeasurementError, match="keys and values of 65 tokens; the device holds 64"):
        made.run(decode_only(8, 1))


def test_keys_and_values_go_from_one_executor_to_another() -> None:
    prefill, decode = executor(), executor()
    prefill.run(whole(1, 100, 8))
    num_bytes, kv = prefill.export_kv(1)
    assert num_bytes == 100 * decoder_shape("small-moe").kv_bytes_per_token(2)
    decode.begin(1, 100, 5)
    decode.import_kv(1, kv)
    prefill.end(1)
    assert decode.run(decode_only(8, 1)).kv_bytes == 101 * decoder_shape("small-moe").kv_bytes_per_token(2)
    assert prefill.run(IterationPlan()).kv_bytes == 0


def test_a_device_without_peaks_cannot_be_simulated() -> None:
    with pytest.raises(ConfigError, match=r"'cpu' states no peak\.memory_bandwidth_bytes_per_s"):
        VirtualExecutor(
            decoder_shape("small-moe"), SPECS["cpu"], tensor_parallel=1, dtype="fp32", kv_capacity_tokens=100
        )
