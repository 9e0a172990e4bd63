"""The two static graphs of a bucketed decoder in OpenVINO: prefill one prompt, decode one step of the batch.

# N = compiled batch size, b = bucket, L = layers, B = rows, S = query positions, T = key positions
# H = query heads, K = key-value heads, G = H/K, D = head_dim
# Hidden states are [B, S, hidden], queries [B, H, S, D], keys and values [B, K, S, D].
The same arithmetic as engines/jax_dense: mean squares, rotation and softmax in float32, products in the weights' dtype.
Sources: RMSNorm arXiv 1910.07467, RoPE 2104.09864, GQA 2305.13245, SwiGLU 2002.05202.

Weights are constants of each graph, as in a binary for an NPU: what a device holds grows with the number of buckets.
A graph gives out the keys and values it computed; the host writes them into the cache, which lies in the input tensors
of the decode request (`engine.py`). Every shape is fixed.

    prefill   prompt int32 [1, b], length int32 [1]          -> token int32 [1], keys and values [2, L, K, b, D]
    decode    tokens, lengths int32 [N], L x keys, L x values [N, K, b, D]
                                                             -> tokens int32 [N], keys and values [2, L, N, K, D]

The last result of both are the logits of a few fixed tokens, float32 [1 or N, NUM_FIXED], which a check reads alone.
The weights are those of engines/probe.py, by which answers are checked, so the timed graphs are those that answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import openvino as ov
from openvino import opset13 as op

from pytest_npubench.engines.probe import fixed_tokens, probe_weights
from pytest_npubench.engines.rope import rope_frequencies
from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.errors import ConfigError

Weights = Mapping[str, Any]
Node = Any
Layer = Mapping[str, Any]
FLOAT = np.float32
DTYPES = {"fp32": np.float32, "fp16": np.float16}


def graph_weights(shape: DecoderShape, dtype: str) -> Any:
    """Returns the tree of probe_weights() in the dtype. Raises ConfigError on one that decoders do not run in."""
    if dtype not in DTYPES:
        raise ConfigError(f"dtype {dtype!r} is not one that decoders run in on OpenVINO: {', '.join(DTYPES)}")
    return probe_weights(shape, dtype, lambda path, values: values.astype(DTYPES[dtype]))


def constant(values: Any) -> Node:
    """Returns a constant that shares the memory of a contiguous array, which the node keeps alive."""
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
    """Returns the output projection and the SwiGLU feed-forward, each added to the stream. attended [B, H, S, D]."""
    joined = reshape(transpose(attended, (0, 2, 1, 3)), (rows, length, shape.num_heads * shape.head_dim))
    x = op.add(x, project(joined, layer["wo"]))
    normed = rms_norm(x, layer["ffn_norm"], shape.rms_eps)
    gate = project(normed, layer["w_gate"])
    gated = op.multiply(op.multiply(gate, op.sigmoid(gate)), project(normed, layer["w_up"]))
    return op.add(x, project(gated, layer["w_down"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A graph's inputs, the logits [rows, vocab] in float32, the greedy tokens, the keys and values it computed, and
    the logits of probe.fixed_tokens()."""

    parameters: tuple[Node, ...]
    logits: Node
    tokens: Node
    keys_values: Node
    fixed_logits: Node

    def model(self) -> Any:
        return ov.Model([self.tokens, self.keys_values, self.fixed_logits], list(self.parameters), "decoder")


def prefill(shape: DecoderShape, weights: Weights, bucket: int) -> Graph:
    """One padded prompt; the token is that after its true `length`."""
    prompt, length = _integers((1, bucket)), _integers((1,))
    x = op.gather(constant(weights["embedding"]), prompt, constant(np.array(0, np.int64)))
    cos, sin = rotation_tables(shape, bucket)
    rotation = constant(cos), constant(sin)
    keys, values = [], []
    for layer in weights["layers"]:
        normed = rms_norm(x, layer["attention_norm"], shape.rms_eps)
        q, k, v = project_qkv(layer, normed, rotation, shape, 1, bucket)
        keys.append(k)
        values.append(v)
        x = finish_layer(layer, x, attend_causal(q, k, v, shape, bucket), shape, 1, bucket)
    last = op.gather(x, op.subtract(length, constant(np.array([1], np.int32))), constant(np.array(1, np.int64)))
    packed = reshape(op.concat([*keys, *values], 0), (2, shape.num_layers, shape.num_kv_heads, bucket, shape.head_dim))
    return _graph((prompt, length), reshape(last, (1, shape.hidden)), packed, shape, weights)


def decode(shape: DecoderShape, weights: Weights, batch_size: int, bucket: int) -> Graph:
    """One token of every row; a row sees its first `lengths` places of the cache and its own new key.

    A row's length may pass the bucket once it has ended and is carried along: it then sees the whole cache.
    """
    tokens, lengths = _integers((batch_size,)), _integers((batch_size,))
    float_type = ov.Type(weights["embedding"].dtype)
    dims = [batch_size, shape.num_kv_heads, bucket, shape.head_dim]
    caches = [op.parameter(dims, float_type) for _ in range(2 * shape.num_layers)]
    x = reshape(
        op.gather(constant(weights["embedding"]), tokens, constant(np.array(0, np.int64))),
        (batch_size, 1, shape.hidden),
    )
    rotation = _rotation_at(shape, lengths, bucket, batch_size)
    places = constant(np.arange(bucket, dtype=np.int32).reshape(1, 1, 1, bucket))
    visible = op.less(places, reshape(lengths, (batch_size, 1, 1, 1)))
    keys, values = [], []
    for index, layer in enumerate(weights["layers"]):
        normed = rms_norm(x, layer["attention_norm"], shape.rms_eps)
        q, k, v = project_qkv(layer, normed, rotation, shape, batch_size, 1)
        keys.append(k)
        values.append(v)
        past = caches[index], caches[shape.num_layers + index]
        attended = attend_step(q, (k, v), past, visible, shape)
        x = finish_layer(layer, x, attended, shape, batch_size, 1)
    packed = reshape(
        op.concat([*keys, *values], 0), (2, shape.num_layers, batch_size, shape.num_kv_heads, shape.head_dim)
    )
    hidden = reshape(x, (batch_size, shape.hidden))
    return _graph((tokens, lengths, *caches), hidden, packed, shape, weights)


def _rotation_at(shape: DecoderShape, lengths: Node, bucket: int, rows: int) -> tuple[Node, Node]:
    """cos and sin [N, 1, 1, D/2] at each row's position."""
    position = op.minimum(lengths, constant(np.array(bucket - 1, np.int32)))
    axis = constant(np.array(0, np.int64))
    cos, sin = (
        reshape(op.gather(constant(table), position, axis), (rows, 1, 1, shape.head_dim // 2))
        for table in rotation_tables(shape, bucket)
    )
    return cos, sin


def _graph(parameters: tuple[Node, ...], hidden: Node, packed: Node, shape: DecoderShape, weights: Weights) -> Graph:
    """Returns the graph, with the logits and greedy tokens of last hidden states [rows, hidden]."""
    table = weights["embedding"] if shape.tied_embeddings else weights["head"]
    normed = rms_norm(hidden, weights["final_norm"], shape.rms_eps)
    logits = op.convert(op.matmul(normed, constant(table), False, True), ov.Type.f32)
    best = op.topk(logits, constant(np.array(1, np.int64)), 1, "max", "value", index_element_type="i32")
    tokens = reshape(best.output(1), (hidden.get_output_shape(0)[0],))
    fixed = constant(np.array(fixed_tokens(shape.vocab_size), np.int64))
    fixed_logits = op.gather(logits, fixed, constant(np.array(1, np.int64)))
    return Graph(parameters=parameters, logits=logits, tokens=tokens, keys_values=packed, fixed_logits=fixed_logits)


def _integers(dims: tuple[int, ...]) -> Node:
    return op.parameter(list(dims), ov.Type.i32)
