"""The parts of a Llama-family decoder layer as nodes of an OpenVINO graph.

# B = rows, S = query positions, T = key positions, H = query heads, K = key-value heads, G = H/K, D = head_dim
# Hidden states are [B, S, hidden], queries [B, H, S, D], keys and values [B, K, S, D].
The same arithmetic as engines/jax_dense: mean squares, rotation and softmax in float32, products in the weights' dtype.
Sources: RMSNorm arXiv 1910.07467, RoPE 2104.09864, GQA 2305.13245, SwiGLU 2002.05202.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import openvino as ov
from openvino import opset13 as op

from pytest_npubench.engines.rope import rope_frequencies
from pytest_npubench.engines.shapes import DecoderShape

Node = Any
Layer = Mapping[str, Any]
FLOAT = np.float32


def constant(values: Any) -> Node:
    """A constant that shares the memory of a contiguous array, which the node keeps alive."""
    return op.constant(values, shared_memory=True)


def project(x: Node, weight: Any) -> Node:
    """x [..., in] times weight [in, out]."""
    return op.matmul(x, constant(weight), False, False)


def reshape(x: Node, dims: Sequence[int]) -> Node:
    return op.reshape(x, constant(np.array(dims, np.int64)), False)


def transpose(x: Node, order: Sequence[int]) -> Node:
    return op.transpose(x, constant(np.array(order, np.int64)))


def rms_norm(x: Node, weight: Any, eps: float) -> Node:
    """x / rms(x) * weight over the last axis."""
    wide = op.convert(x, ov.Type.f32)
    mean = op.reduce_mean(op.multiply(wide, wide), constant(np.array([-1], np.int64)), True)
    scaled = op.divide(wide, op.sqrt(op.add(mean, constant(np.array(eps, FLOAT)))))
    return op.multiply(op.convert_like(scaled, x), constant(weight))


def rotation_tables(shape: DecoderShape, length: int) -> tuple[Any, Any]:
    """cos and sin of every position's angles, float32 [length, D/2]."""
    angles = np.arange(length)[:, None].astype(FLOAT) * rope_frequencies(shape).astype(FLOAT)
    return np.cos(angles), np.sin(angles)


def rotate(x: Node, cos: Node, sin: Node) -> Node:
    """Rotate the two halves of each head. x [B, heads, S, D]; cos and sin broadcast to [B, heads, S, D/2]."""
    low, high = op.split(op.convert(x, ov.Type.f32), constant(np.array(3, np.int64)), 2).outputs()
    turned = [
        op.subtract(op.multiply(low, cos), op.multiply(high, sin)),
        op.add(op.multiply(high, cos), op.multiply(low, sin)),
    ]
    return op.convert_like(op.concat(turned, 3), x)


def project_qkv(
    layer: Layer, x: Node, rotation: tuple[Node, Node], shape: DecoderShape, rows: int, length: int
) -> tuple[Node, Node, Node]:
    """Queries [B, H, S, D], keys and values [B, K, S, D] of normalised hidden states [B, S, hidden], rotated."""

    def heads(name: str, count: int) -> Node:
        return reshape(project(x, layer[name]), (rows, length, count, shape.head_dim))

    q, k, v = heads("wq", shape.num_heads), heads("wk", shape.num_kv_heads), heads("wv", shape.num_kv_heads)
    if shape.qk_norm:
        q, k = rms_norm(q, layer["q_norm"], shape.rms_eps), rms_norm(k, layer["k_norm"], shape.rms_eps)
    q, k, v = (transpose(part, (0, 2, 1, 3)) for part in (q, k, v))
    return rotate(q, *rotation), rotate(k, *rotation), v


def attend_causal(q: Node, k: Node, v: Node, shape: DecoderShape, length: int) -> Node:
    """Causal attention of one prompt by the plugin's own kernel: q [1, H, S, D], k and v [1, K, S, D]."""
    groups = shape.num_heads // shape.num_kv_heads
    return op.scaled_dot_product_attention(
        q, _repeated(k, shape, groups, length), _repeated(v, shape, groups, length), causal=True
    )


def _repeated(x: Node, shape: DecoderShape, groups: int, length: int) -> Node:
    """[1, K, S, D] with each head for its group's queries: [1, H, S, D]."""
    dims = (1, shape.num_kv_heads, groups, length, shape.head_dim)
    wide = op.broadcast(
        op.unsqueeze(x, constant(np.array([2], np.int64))), constant(np.array(dims, np.int64)), "BIDIRECTIONAL"
    )
    return reshape(wide, (1, shape.num_heads, length, shape.head_dim))


def attend_step(q: Node, new: tuple[Node, Node], past: tuple[Node, Node], visible: Node, shape: DecoderShape) -> Node:
    """One query a row against its cache and its own key: q [B, H, 1, D], new [B, K, 1, D], past [B, K, T, D].

    visible [B, 1, 1, T] tells which of the cache's positions are filled; the new key is always seen. The new key and
    value stay out of the cache here: writing them is the host's part, so no graph copies a cache.
    """
    rows, groups = q.get_output_shape(0)[0], shape.num_heads // shape.num_kv_heads
    grouped = reshape(q, (rows, shape.num_kv_heads, groups, shape.head_dim))
    scale = constant(np.array(1 / math.sqrt(shape.head_dim), FLOAT))

    def scores(keys: Node) -> Node:
        return op.multiply(op.convert(op.matmul(grouped, keys, False, True), ov.Type.f32), scale)

    hidden = constant(np.array(np.finfo(FLOAT).min, FLOAT))
    seen = op.select(visible, scores(past[0]), hidden)
    weights = op.convert_like(op.softmax(op.concat([seen, scores(new[0])], 3), 3), q)
    length = past[0].get_output_shape(0)[2]
    old, newest = op.variadic_split(
        weights, constant(np.array(3, np.int64)), constant(np.array([length, 1], np.int64))
    ).outputs()
    attended = op.add(op.matmul(old, past[1], False, False), op.matmul(newest, new[1], False, False))
    return reshape(attended, (rows, shape.num_heads, 1, shape.head_dim))


def finish_layer(layer: Layer, x: Node, attended: Node, shape: DecoderShape, rows: int, length: int) -> Node:
    """The output projection and the SwiGLU feed-forward, each added to the stream. attended [B, H, S, D]."""
    joined = reshape(transpose(attended, (0, 2, 1, 3)), (rows, length, shape.num_heads * shape.head_dim))
    x = op.add(x, project(joined, layer["wo"]))
    normed = rms_norm(x, layer["ffn_norm"], shape.rms_eps)
    gate = project(normed, layer["w_gate"])
    gated = op.multiply(op.multiply(gate, op.sigmoid(gate)), project(normed, layer["w_up"]))
    return op.add(x, project(gated, layer["w_down"]))
