"""Layers that differ: a decoder whose layers are alike costs as much when it is taken layer by layer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.engines.decoder_layers import NO_MIXER, Mixer, latent_attention, with_index
from pytest_npubench.engines.shapes import DecoderShape, decoder_shape
from pytest_npubench.engines.state_layers import delta_rule
from pytest_npubench.extensions.planning.virtual.calibration import prior_of
from pytest_npubench.extensions.planning.virtual.cost import cost_model
from pytest_npubench.extensions.planning.virtual.mixed_layers import step_cost
from pytest_npubench.extensions.planning.virtual.step_cost import PassWork, StepWork
from pytest_npubench.serving.iteration import PrefillRow
from pytest_npubench.suites.hardware_files import known_folders, load_all

SPEC = load_all(known_folders())["nvidia-h100"]
HOW = {"tensor_parallel": 2, "dtype": "bf16"}


@pytest.mark.parametrize("name", ["llama-3.2-1b", "qwen3-30b-a3b", "gpt-oss-20b"])
@given(data=st.data())
def test_layers_that_are_alike_cost_the_same_one_by_one(name: str, data: st.DataObject) -> None:
    shape = decoder_shape(name)
    first = data.draw(st.integers(0, shape.num_layers - 1))
    stop = data.draw(st.integers(first + 1, shape.num_layers))
    rows = [PrefillRow(0, data.draw(st.integers(0, 900)), data.draw(st.integers(1, 900)))]
    activations = 0 if shape.is_dense else data.draw(st.integers(1, 8 * (stop - first)))
    decode = data.draw(st.integers(0, 64))
    work = StepWork([PassWork(first, stop, rows, activations)], decode, decode * 500, decode * 100, decode + 1)
    mixed = step_cost(replace(shape, layers=shape.all_layers), SPEC, **HOW)
    assert mixed.seconds(work) == pytest.approx(cost_model(shape, SPEC, **HOW).seconds(work), rel=1e-12)


@pytest.mark.parametrize("name", ["llama-3.2-1b", "qwen3-30b-a3b", "gpt-oss-20b"])
def test_a_calibration_begins_with_the_same_seconds(name: str) -> None:
    shape = decoder_shape(name)
    alike, mixed = (prior_of(each, SPEC, **HOW).unit_s for each in (shape, replace(shape, layers=shape.all_layers)))
    assert mixed == pytest.approx(alike)


def test_dense_layers_have_no_experts() -> None:
    """Of 48 layers the first 8 are dense: 8 experts a token are activated in 40, and the rest costs nothing of them."""
    shape = decoder_shape("qwen3-30b-a3b")
    dense = replace(shape.all_layers[0], has_experts=False, router_parameters=0, dense_parameters=3 * 2048 * 6144)
    mixed = replace(shape, layers=(dense,) * 8 + shape.all_layers[8:])
    assert mixed.expert_layers(4, 20) == (0, 12)
    experts = shape.num_experts * shape.expert_parameters
    router = shape.hidden * shape.num_experts
    assert mixed.num_parameters == shape.num_parameters + 8 * (3 * 2048 * 6144 - experts - router)
    cost = step_cost(mixed, SPEC, **HOW)

    def seconds(first: int, stop: int, activations: int) -> float:
        return cost.seconds(StepWork([PassWork(first, stop, (), activations)], 1, 100, 100, 1))

    assert seconds(0, 48, 320) - seconds(0, 48, 0) == pytest.approx(seconds(8, 48, 320) - seconds(8, 48, 0))
    assert seconds(0, 8, 0) == seconds(0, 8, 320)


def _seconds(shape: DecoderShape, decode: int, context: int, *rows: PrefillRow) -> float:
    window = decode * min(context, shape.sliding_window or context)
    whole = [PassWork(0, shape.num_layers, list(rows), 0)]
    return step_cost(shape, SPEC, tensor_parallel=1, dtype="bf16").seconds(
        StepWork(whole, decode, decode * context, window, 0)
    )


def _with(mixer: Mixer, **figures: int) -> DecoderShape:
    """A dense decoder whose layers mix tokens so."""
    plain = decoder_shape("llama-3.2-1b")
    layer = replace(plain.all_layers[0], **mixer, **figures)
    return replace(plain, layers=(layer,) * plain.num_layers)


def test_a_state_is_read_and_written_by_each_decode_row_and_once_by_a_prompt() -> None:
    """Qwen3-Next's: 32 x 128 x 128 values of 4 bytes and 4 x 8,192 of 2, 16 layers, there and back at 0.8 x 3.35 TB/s;
    4 multiplications of each value, at 0.3 of 989.4e12 operations, take less."""
    state = delta_rule(hidden=2048, num_key_heads=16, num_value_heads=32, key_dim=128, value_dim=128, kernel=4)
    shape = _with(state)
    moved_s = 16 * 2 * (4 * 524_288 + 2 * 32_768) / (0.8 * 3.35e12)
    assert shape.state_bytes(2) == 16 * (4 * 524_288 + 2 * 32_768)
    assert shape.kv_bytes_per_token(2) == 0
    stateless = _with(state | Mixer(state_values=0, float32_values=0, state_products=0))
    assert _seconds(shape, 64, 999) - _seconds(stateless, 64, 999) == pytest.approx(64 * moved_s)
    assert _seconds(shape, 64, 10) == _seconds(shape, 64, 10**6)
    row = PrefillRow(0, 0, 10)
    assert _seconds(shape, 0, 0, row) - _seconds(stateless, 0, 0, row) == pytest.approx(moved_s)
    row = PrefillRow(0, 0, 4096)
    multiplied_s = 16 * 4096 * 2 * 4 * 524_288 / (0.3 * 989.4e12)
    assert _seconds(shape, 0, 0, row) - _seconds(stateless, 0, 0, row) == pytest.approx(multiplied_s, rel=1e-3)


def test_a_calibrated_row_moves_its_states_as_so_many_tokens_of_context() -> None:
    """A state of 100 tokens, read and written: 200 tokens more of each of 8 rows."""
    plain = decoder_shape("llama-3.2-1b")
    layer = plain.all_layers[0]
    shape = replace(plain, layers=tuple(replace(layer, state_values=100 * layer.kv_values) for _ in range(16)))
    costs = [(prior := prior_of(each, SPEC, **HOW)).cost(each, prior.mean) for each in (shape, plain)]
    work = [StepWork([PassWork(0, 16, (), 0)], 8, context, 0, 8) for context in (4_000, 5_600)]
    assert costs[0].seconds(work[0]) == pytest.approx(costs[1].seconds(work[1]))


def test_an_index_reads_all_tokens_and_attention_those_that_it_chooses() -> None:
    """128 values of 2 bytes a token of the context, whatever its length; the cache's of 2,048 tokens."""
    latent = latent_attention(hidden=2048, num_heads=16, query_rank=1536, kv_rank=512, nope=128, rope=64, value=128)
    shape = replace(
        _with(with_index(latent, hidden=2048, query_rank=1536, num_heads=4, head_dim=128), window=2048),
        sliding_window=2048,
    )
    each_s = 16 * 2 * 128 / (0.8 * 3.35e12)
    assert _seconds(shape, 8, 102_048) - _seconds(shape, 8, 2_048) == pytest.approx(8 * 100_000 * each_s)
    assert shape.kv_bytes_per_token(2) == 16 * 2 * (512 + 64 + 128)


def test_layers_of_one_block_cost_half_of_what_is_fixed() -> None:
    shape = decoder_shape("llama-3.2-1b")
    layer = shape.all_layers[0]
    halves = (replace(layer, dense_parameters=0), replace(layer, **NO_MIXER, dense_parameters=layer.dense_parameters))
    split = replace(shape, num_layers=32, layers=halves * 16)
    whole = replace(shape, layers=shape.all_layers)
    assert _seconds(split, 1, 500) == pytest.approx(_seconds(whole, 1, 500), rel=1e-3)
    assert {half.num_blocks for half in halves} == {1}
