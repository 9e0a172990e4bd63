"""The weights as stacks over all layers: dimensions, shardings, seeded random values, and a layer put in its place.

Names and layouts are those of engines/probe.py. Over several devices heads are shared out, and experts as wholes (a
dense decoder's width): each adds its part of attention and of the feed-forward blocks (forward.py). Where there are
more devices than key-value heads, each head has as many copies as devices need it: 2 for 4 heads on 8 devices.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from pytest_npubench.engines.jax_moe.forward import AXIS, Weights
from pytest_npubench.engines.random_tensors import ROUTER_BIAS_SPREAD, ROUTER_SPREAD, ROUTER_TAPER
from pytest_npubench.engines.shapes import DecoderShape


def stacked_dims(shape: DecoderShape, copies: int = 1) -> dict[str, tuple[int, ...]]:
    """The dimensions of every tensor, with so many copies of each key-value head; in front those of layers, then
    of experts."""
    layers, hidden, width = shape.num_layers, shape.hidden, shape.intermediate
    query, key = shape.num_heads * shape.head_dim, copies * shape.num_kv_heads * shape.head_dim
    blocks = (layers,) if shape.is_dense else (layers, shape.num_experts)
    dims: dict[str, tuple[int, ...]] = {
        "embedding": (shape.vocab_size, hidden),
        "final_norm": (hidden,),
        "attention_norm": (layers, hidden),
        "ffn_norm": (layers, hidden),
        "wq": (layers, hidden, query),
        "wk": (layers, hidden, key),
        "wv": (layers, hidden, key),
        "wo": (layers, query, hidden),
        "w_gate": (*blocks, hidden, width),
        "w_up": (*blocks, hidden, width),
        "w_down": (*blocks, width, hidden),
    }
    if shape.qk_norm:
        dims |= dict.fromkeys(("q_norm", "k_norm"), (layers, shape.head_dim))
    if not shape.is_dense:
        dims |= {"router": (layers, hidden, shape.num_experts), "router_bias": (layers, shape.num_experts)}
    return dims if shape.tied_embeddings else {**dims, "head": (shape.vocab_size, hidden)}


def weight_specs(shape: DecoderShape) -> dict[str, P]:
    """How each tensor is shared out."""
    columns, rows, experts = P(None, None, AXIS), P(None, AXIS, None), P(None, AXIS, None, None)
    blocks = (columns, columns, rows) if shape.is_dense else (experts,) * 3
    split = {"wq": columns, "wk": columns, "wv": columns, "wo": rows}
    split |= dict(zip(("w_gate", "w_up", "w_down"), blocks, strict=True))
    return {name: split.get(name, P()) for name in stacked_dims(shape)}


def random_weights(shape: DecoderShape, seed: Any, dtype: Any, copies: int) -> Weights:
    """All weights from one uint32 seed, normal with variance 1/fan-in, norms 1, the router as engines/random_tensors.py
    has it. Traced, so it runs where it is jitted."""
    dims = stacked_dims(shape)
    keys = dict(zip(dims, jax.random.split(jax.random.key(seed), len(dims)), strict=True))

    def normal(name: str) -> Any:
        return jax.random.normal(keys[name], dims[name], dtype)

    weights = {}
    for name in dims:
        if name.endswith("norm"):
            weights[name] = jnp.ones(dims[name], dtype)
        else:
            fan_in = dims[name][-1] if name in ("embedding", "head") else dims[name][-2]
            weights[name] = normal(name) * jnp.asarray(fan_in**-0.5, dtype)
    weights |= {name: with_copies(weights[name], shape.head_dim, copies) for name in ("wk", "wv")}
    if not shape.is_dense:
        unit = normal("router_bias")
        weights["router"] *= (ROUTER_SPREAD * jnp.exp(-ROUTER_TAPER * unit))[:, None]
        weights["router_bias"] = (ROUTER_BIAS_SPREAD * unit).astype(dtype)
    return weights


def with_copies(values: Any, head_dim: int, copies: int) -> Any:
    """values [..., K x head_dim] with each head that often, its copies side by side."""
    *dims, width = values.shape
    return values.reshape(*dims, -1, head_dim).repeat(copies, axis=-2).reshape(*dims, width * copies)


def with_layer(weights: Weights, layer: Weights, index: Any) -> Weights:
    """The weights with the tensors of one layer in their place."""
    placed = dict(weights)
    for name, values in layer.items():
        placed[name] = lax.dynamic_update_index_in_dim(weights[name], values, index, 0)
    return placed


def checksum(weights: Weights) -> Any:
    """The sum of the bits of all weights as whole numbers, modulo 2^32 (engines/probe.py's weights_bits)."""
    total = jnp.uint32(0)
    for values in weights.values():
        whole = jnp.uint16 if values.dtype.itemsize == 2 else jnp.uint32
        total += lax.bitcast_convert_type(values, whole).astype(jnp.uint32).sum(dtype=jnp.uint32)
    return total
