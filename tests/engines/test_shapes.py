"""The named shapes against their makers' published counts, and the bytes counted from them against real arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pytest_npubench.engines.jax_dense.memory import cache_bytes, weight_bytes
from pytest_npubench.engines.jax_dense.weights import random_weights, weight_specs
from pytest_npubench.engines.shapes import SHAPES, DecoderShape, decoder_shape, dense_shape
from pytest_npubench.errors import ConfigError, RegistryError

from .conftest import Served
from .decoders import BATCH_SIZE, NORMED, SPLIT, TIED

# parameters of the checkpoints, as their safetensors headers add up on the model pages
PUBLISHED = {
    "llama-3.2-1b": 1_235_814_400,
    "mistral-7b-v0.3": 7_248_023_552,
    "qwen3-14b": 14_768_307_200,
    "qwen3-8b": 8_190_735_360,
    "qwen3-30b-a3b": 30_532_122_624,
    "gpt-oss-20b": 20_914_757_184,
}

DENSE = [shape for shape in SHAPES.values() if shape.is_dense]
every_shape = pytest.mark.parametrize("shape", DENSE, ids=lambda shape: shape.name)


@pytest.mark.parametrize(("name", "num_parameters"), PUBLISHED.items())
def test_num_parameters_as_published(name: str, num_parameters: int) -> None:
    assert decoder_shape(name).num_parameters == num_parameters


def abstract_weights(shape: DecoderShape) -> dict[str, object]:
    """The weights' shapes, without making any."""
    seed = jax.ShapeDtypeStruct((), np.uint32)
    weights: dict[str, object] = jax.eval_shape(partial(random_weights, shape, dtype=jnp.bfloat16), seed)
    return weights


@every_shape
def test_num_parameters_is_what_the_weights_hold(shape: DecoderShape) -> None:
    leaves = jax.tree.leaves(abstract_weights(shape))
    assert sum(math.prod(leaf.shape) for leaf in leaves) == shape.num_parameters
    assert {leaf.dtype for leaf in leaves} == {np.dtype(jnp.bfloat16)}


@every_shape
def test_every_weight_has_a_split(shape: DecoderShape) -> None:
    specs = jax.tree.structure(weight_specs(shape), is_leaf=lambda node: isinstance(node, jax.sharding.PartitionSpec))
    assert jax.tree.structure(abstract_weights(shape)) == specs


@pytest.mark.parametrize(
    ("name", "kv_bytes"),
    [
        ("llama-3.2-1b", 32_768),  # 2 * 16 layers * 8 heads * 64 * 2 bytes
        ("mistral-7b-v0.3", 131_072),  # 2 * 32 * 8 * 128 * 2
        ("qwen3-14b", 163_840),  # 2 * 40 * 8 * 128 * 2
    ],
)
def test_kv_bytes_per_token(name: str, kv_bytes: int) -> None:
    assert decoder_shape(name).kv_bytes_per_token(dtype_bytes=2) == kv_bytes


def test_a_shape_with_experts_is_none_of_the_bucket_suite() -> None:
    assert dense_shape("qwen3-8b").is_dense
    with pytest.raises(RegistryError, match="shape 'small-moe' has experts or biases; want one of tiny-llama, "):
        dense_shape("small-moe")
    with pytest.raises(RegistryError, match=r"unknown decoder shape 'small-mo'; known: tiny-llama, .*small-dense; did"):
        dense_shape("small-mo")


def test_an_unknown_shape_is_named_with_the_known_ones() -> None:
    with pytest.raises(
        RegistryError, match=r"unknown decoder shape 'qwen3-14'; known: tiny-llama, .*did you mean 'qwen3-14b'"
    ):
        decoder_shape("qwen3-14")


@pytest.mark.parametrize("name", [TIED.name, NORMED.name])
def test_random_weights_have_variance_one_over_fan_in(serve: Callable[[str], Served], name: str) -> None:
    """Thousands of samples each: their standard deviation is within a few percent, and no two weights are alike."""
    engine = serve(name).engine
    shape, layers = engine.shape, engine.weights["layers"]
    fan_in = {"wq": shape.hidden, "wo": shape.num_heads * shape.head_dim, "w_down": shape.intermediate}
    for weight, width in fan_in.items():
        assert float(np.std(layers[0][weight])) * math.sqrt(width) == pytest.approx(1, rel=0.06)
        assert not np.array_equal(layers[0][weight], layers[1][weight])
    assert not np.array_equal(layers[0]["w_gate"], layers[0]["w_up"])


def allocated(tree: Any) -> int:
    return sum(array.nbytes for array in jax.tree.leaves(tree))


def test_bytes_are_those_of_the_arrays(served: Served) -> None:
    engine = served.engine
    assert weight_bytes(engine.shape, "fp32") == allocated(engine.weights)
    assert cache_bytes(engine.shape, 16, BATCH_SIZE, "fp32") == allocated(engine._new_caches(16))


def test_llama_by_hand() -> None:
    """1,235,814,400 parameters, of them (2 * 16 + 1) * 2048 = 67,584 in norms; 16 * 8 * 64 * 2 of KV a token."""
    shape = decoder_shape("llama-3.2-1b")
    assert weight_bytes(shape, "bf16") == 2_471_628_800
    assert weight_bytes(shape, "bf16", 4) == 2 * ((1_235_814_400 - 67_584) // 4 + 67_584)
    assert cache_bytes(shape, 4096, 8, "bf16", 4) == 8 * 4096 * 16_384 * 2 // 4


def test_a_head_norm_lies_on_every_device() -> None:
    """q_norm and k_norm of head_dim each, in every layer."""
    whole = SPLIT.num_layers * (2 * SPLIT.hidden + 2 * SPLIT.head_dim) + SPLIT.hidden
    assert weight_bytes(SPLIT, "fp32", 2) * 2 == weight_bytes(SPLIT, "fp32") + 4 * whole


@pytest.mark.parametrize("count", [weight_bytes, lambda *args: cache_bytes(args[0], 8, 1, *args[1:])])
def test_what_cannot_be_counted_is_refused(count: Callable[..., int]) -> None:
    with pytest.raises(ConfigError, match="dtype 'fp8' is not one the decoder computes in: fp32, bf16, fp16"):
        count(NORMED, "fp8", 1)
    with pytest.raises(ConfigError, match="normed: num_kv_heads = 1 does not split over 2 devices"):
        count(NORMED, "bf16", 2)
