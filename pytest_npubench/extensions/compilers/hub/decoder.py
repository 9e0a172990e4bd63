"""The two graphs of one bucket, with every dimension fixed.

# b = bucket, N = rows, K = key-value heads, D = head_dim, L = layers
prefill: tokens int32 [1, b], length int32 [1]
         -> logits [1, vocab] of the last true token, keys_l, values_l [1, K, b, D]
decode:  tokens int32 [N], lengths int32 [N], past_keys_l, past_values_l [N, K, b-1, D]
         -> logits [N, vocab], keys_l, values_l [N, K, 1, D]

A decode step sees the first lengths[n] cached keys of row n and the new one: KV length c_t = lengths[n] + 1 <= b
(LENS, Eq. 3), b positions in all. It gives only its new keys and values back, which the caller writes in place, as the
reference decoder's donated caches do. The most likely token is the caller's to pick from the logits.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pytest_npubench.core.measurement import Phase
from pytest_npubench.extensions.compilers.hub.graph import GraphSpec
from pytest_npubench.extensions.compilers.hub.layers import DecoderNodes, rotation_tables
from pytest_npubench.extensions.compilers.hub.onnx_file import MAX_INSIDE_BYTES, OnnxFile
from pytest_npubench.extensions.compilers.hub.weights import WeightSource, seeded_weights

BLOCK = 256  # queries whose scores are in memory at once, as in the reference decoder


def export_graph(spec: GraphSpec, folder: Path, weights: WeightSource | None = None) -> Path:
    """Write the graph into `folder`, which is made; returns the .onnx file, or the folder where weights lie beside it.

    `weights` takes the place of the seeded ones.
    """
    source = weights or seeded_weights(spec.shape, seed=spec.seed, dtype=spec.dtype)
    file = OnnxFile(spec.name, folder, weights_beside=spec.weight_bytes > MAX_INSIDE_BYTES)
    nodes = DecoderNodes(file, spec.shape, source, spec.dtype)
    (_prefill if spec.phase is Phase.PREFILL else _decode)(nodes, spec)
    return file.save()


def _prefill(nodes: DecoderNodes, spec: GraphSpec) -> None:
    file, bucket, shape = nodes.file, spec.bucket, spec.shape
    tokens, length = file.input("tokens", "int32", (1, bucket)), file.input("length", "int32", (1,))
    cos, sin = (file.constant(table[None, :, None]) for table in rotation_tables(shape, bucket))
    x = file.node("Gather", nodes.weight("embedding"), tokens, axis=0)
    for index in range(shape.num_layers):
        x = prefill_layer(nodes, spec, x, index, cos, sin)
    last = file.node("Sub", length, file.constant(np.array([1], np.int32)))
    hidden = nodes.reshape(file.node("Gather", x, last, axis=1), 1, shape.hidden)
    file.output(nodes.logits(hidden), "logits", "fp32", (1, shape.vocab_size))


def prefill_layer(nodes: DecoderNodes, spec: GraphSpec, x: str, index: int, cos: str, sin: str) -> str:
    """One layer of a prompt [1, b, hidden]; its keys and values are given back."""

    def attention(normed: str, prefix: str) -> str:
        q, keys, values = nodes.project(normed, prefix, cos, sin, 1, spec.bucket)
        _give_back(nodes, spec, index, keys, values, spec.bucket)
        return _attend_causal(nodes, q, keys, values, spec.bucket)

    return nodes.layer(x, index, attention)


def _attend_causal(nodes: DecoderNodes, q: str, keys: str, values: str, bucket: int) -> str:
    """Causal attention of a whole prompt, a block of queries at a time over the keys up to the block's end."""
    shape = nodes.shape
    groups = shape.num_heads // shape.num_kv_heads
    split = nodes.reshape(q, 1, bucket, shape.num_kv_heads, groups, shape.head_dim)
    queries = nodes.file.node("Transpose", split, perm=[0, 2, 3, 1, 4])  # [1, K, G, b, D]
    blocks = []
    for start in range(0, bucket, BLOCK):
        end = min(start + BLOCK, bucket)
        visible = np.arange(end)[None, :] <= np.arange(start, end)[:, None]
        part = nodes.slice(queries, start, end, 3)
        flat = nodes.reshape(part, 1, shape.num_kv_heads, groups * (end - start), shape.head_dim)
        mask = nodes.file.constant(np.tile(visible, (groups, 1))[None, None])
        attended = nodes.attend(flat, nodes.slice(keys, 0, end, 2), nodes.slice(values, 0, end, 2), mask)
        blocks.append(nodes.reshape(attended, 1, shape.num_kv_heads, groups, end - start, shape.head_dim))
    whole = nodes.file.node("Concat", *blocks, axis=3)
    back = nodes.file.node("Transpose", whole, perm=[0, 3, 1, 2, 4])
    return nodes.reshape(back, 1, bucket, shape.num_heads * shape.head_dim)


def _decode(nodes: DecoderNodes, spec: GraphSpec) -> None:
    file, rows, shape = nodes.file, spec.batch_size, spec.shape
    tokens, lengths = file.input("tokens", "int32", (rows,)), file.input("lengths", "int32", (rows,))
    step = StepNodes.of(nodes, spec, lengths)
    x = nodes.reshape(file.node("Gather", nodes.weight("embedding"), tokens, axis=0), rows, 1, shape.hidden)
    for index in range(shape.num_layers):
        x = decode_layer(nodes, spec, x, index, step)
    file.output(nodes.logits(nodes.reshape(x, rows, shape.hidden)), "logits", "fp32", (rows, shape.vocab_size))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepNodes:
    """What all layers of a decode step take: each row's rotation [N, 1, 1, D/2], and what it sees."""

    cos: str
    sin: str
    visible: str

    @classmethod
    def of(cls, nodes: DecoderNodes, spec: GraphSpec, lengths: str) -> StepNodes:
        file, rows = nodes.file, spec.batch_size
        tables = (file.constant(table) for table in rotation_tables(spec.shape, spec.bucket))
        cos, sin = (nodes.reshape(file.node("Gather", table, lengths, axis=0), rows, 1, 1, -1) for table in tables)
        return cls(cos=cos, sin=sin, visible=_visible(nodes, spec, lengths))


def decode_layer(nodes: DecoderNodes, spec: GraphSpec, x: str, index: int, step: StepNodes) -> str:
    """One layer of a step [N, 1, hidden] over its caches, which are inputs; its new keys and values are given back."""
    file, rows, shape = nodes.file, spec.batch_size, spec.shape
    groups, past = shape.num_heads // shape.num_kv_heads, (rows, shape.num_kv_heads, spec.bucket - 1, shape.head_dim)
    cached = [file.input(f"past_{name}_{index}", spec.dtype, past) for name in ("keys", "values")]

    def attention(normed: str, prefix: str) -> str:
        q, keys, values = nodes.project(normed, prefix, step.cos, step.sin, rows, 1)
        _give_back(nodes, spec, index, keys, values, 1)
        grouped = nodes.reshape(q, rows, shape.num_kv_heads, groups, shape.head_dim)
        whole = [file.node("Concat", old, new, axis=2) for old, new in zip(cached, (keys, values), strict=True)]
        attended = nodes.attend(grouped, whole[0], whole[1], step.visible)
        return nodes.reshape(attended, rows, 1, shape.num_heads * shape.head_dim)

    return nodes.layer(x, index, attention)


def _visible(nodes: DecoderNodes, spec: GraphSpec, lengths: str) -> str:
    """Bool [N, 1, 1, b]: the first lengths[n] cached positions, and the new one, which stands behind the cache."""
    positions = np.arange(spec.bucket, dtype=np.int32).reshape(1, 1, 1, -1)
    positions[..., -1] = -1  # below any length
    return nodes.file.node("Less", nodes.file.constant(positions), nodes.reshape(lengths, spec.batch_size, 1, 1, 1))


def _give_back(nodes: DecoderNodes, spec: GraphSpec, index: int, keys: str, values: str, length: int) -> None:
    dims = (spec.batch_size, spec.shape.num_kv_heads, length, spec.shape.head_dim)
    for name, value in (("keys", keys), ("values", values)):
        nodes.file.output(value, f"{name}_{index}", spec.dtype, dims)
