"""The two static graphs of a bucketed decoder in OpenVINO: prefill one prompt, decode one step of the batch.

# N = compiled batch size, b = bucket, K = key-value heads, D = head_dim, L = layers
Weights are constants of each graph, as in a binary for an NPU: what a device holds grows with the number of buckets.
A graph gives out the keys and values it computed; the host writes them into the cache, which lies in the input tensors
of the decode request (`cache.py`). Every shape is fixed.

    prefill   prompt int32 [1, b], length int32 [1]          -> token int32 [1], keys and values [2, L, K, b, D]
    decode    tokens, lengths int32 [N], L x keys, L x values [N, K, b, D]
                                                             -> tokens int32 [N], keys and values [2, L, N, K, D]

The last result of both are the logits of a few fixed tokens, float32 [1 or N, NUM_FIXED], which a check reads alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import openvino as ov
from openvino import opset13 as op

from pytest_npubench.engines.openvino_dense.layers import (
    Node,
    attend_causal,
    attend_step,
    constant,
    finish_layer,
    project_qkv,
    reshape,
    rms_norm,
    rotation_tables,
)
from pytest_npubench.engines.probe import fixed_tokens
from pytest_npubench.engines.shapes import DecoderShape

Weights = Mapping[str, Any]


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
    """With the logits and greedy tokens of last hidden states [rows, hidden]."""
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
