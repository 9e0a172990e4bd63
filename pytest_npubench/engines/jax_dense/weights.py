"""Seeded random weights, generated on the device(s) that hold them, and how they are split for tensor parallelism.

Megatron's split (arXiv 1909.08053): heads and the feed-forward width over the devices, one all-reduce after each of
attention and feed-forward; norms whole; the vocabulary split for the logits.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from pytest_npubench.engines.shapes import DecoderShape

Weights = dict[str, Any]
AXIS = "tensor"


def weight_specs(shape: DecoderShape) -> Weights:
    """The PartitionSpec of every weight over the mesh axis "tensor", as a tree like the weights."""
    layer = {
        "attention_norm": P(),
        "ffn_norm": P(),
        "wq": P(None, AXIS),
        "wk": P(None, AXIS),
        "wv": P(None, AXIS),
        "wo": P(AXIS, None),
        "w_gate": P(None, AXIS),
        "w_up": P(None, AXIS),
        "w_down": P(AXIS, None),
    }
    if shape.qk_norm:
        layer |= {"q_norm": P(), "k_norm": P()}
    specs: Weights = {"embedding": P(AXIS, None), "final_norm": P(), "layers": [dict(layer)] * shape.num_layers}
    if not shape.tied_embeddings:
        specs["head"] = P(AXIS, None)
    return specs


def random_weights(shape: DecoderShape, seed: jax.Array, dtype: Any) -> Weights:
    """All weights from one uint32 seed: normal with variance 1/fan-in, norms 1. Traced, so it runs where it is jitted.

    A layer: wq [hidden, H*D], wk and wv [hidden, K*D], wo [H*D, hidden], w_gate and w_up [hidden, intermediate],
    w_down [intermediate, hidden]; embedding and head [vocab, hidden].
    """
    keys = jax.random.split(jax.random.key(seed), shape.num_layers + 2)
    weights: Weights = {
        "embedding": _normal(keys[0], (shape.vocab_size, shape.hidden), 1, dtype),
        "final_norm": jnp.ones(shape.hidden, dtype),
        "layers": [_random_layer(shape, key, dtype) for key in keys[2:]],
    }
    if not shape.tied_embeddings:
        weights["head"] = _normal(keys[1], (shape.vocab_size, shape.hidden), shape.hidden, dtype)
    return weights


def _random_layer(shape: DecoderShape, key: jax.Array, dtype: Any) -> Weights:
    hidden, width = shape.hidden, shape.head_dim
    keys = jax.random.split(key, 7)
    layer = {
        "attention_norm": jnp.ones(hidden, dtype),
        "ffn_norm": jnp.ones(hidden, dtype),
        "wq": _normal(keys[0], (hidden, shape.num_heads * width), hidden, dtype),
        "wk": _normal(keys[1], (hidden, shape.num_kv_heads * width), hidden, dtype),
        "wv": _normal(keys[2], (hidden, shape.num_kv_heads * width), hidden, dtype),
        "wo": _normal(keys[3], (shape.num_heads * width, hidden), shape.num_heads * width, dtype),
        "w_gate": _normal(keys[4], (hidden, shape.intermediate), hidden, dtype),
        "w_up": _normal(keys[5], (hidden, shape.intermediate), hidden, dtype),
        "w_down": _normal(keys[6], (shape.intermediate, hidden), shape.intermediate, dtype),
    }
    if shape.qk_norm:
        layer |= {"q_norm": jnp.ones(width, dtype), "k_norm": jnp.ones(width, dtype)}
    return layer


def _normal(key: jax.Array, dims: tuple[int, ...], fan_in: int, dtype: Any) -> jax.Array:
    return jax.random.normal(key, dims, dtype) * jnp.asarray(1 / math.sqrt(fan_in), dtype)
