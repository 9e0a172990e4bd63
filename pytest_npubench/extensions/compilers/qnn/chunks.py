"""A layer's prefill in chunks, whole and split as llm.npu shares graphs (arXiv 2407.05858, section 3.2).

# C = CHUNK_TOKENS, T = positions up to the chunk's end, H = query heads, K = key-value heads, D = head_dim
chunk:     x [1, C, hidden], past keys and values [1, K, T - C, D] where T > C
           -> hidden [1, C, hidden], the chunk's keys and values [1, K, C, D]
shared:    x [1, C, hidden], cos and sin [1, C, 1, D/2], attended [1, C, H*D]
           -> queries [1, C, H, D], keys and values [1, K, C, D]; hidden [1, C, hidden] of x and attended
attention: queries, keys, values, past keys and values -> attended

Only attention knows where the chunk stands, and it has no weights: of a layer's graphs shared is there once for all
chunks, where a graph for every chunk holds all weights again.
"""

from __future__ import annotations

import numpy as np

from pytest_npubench.extensions.compilers.hub.layers import DecoderNodes, rotation_tables
from pytest_npubench.extensions.compilers.qnn.facts import Part

CHUNK_TOKENS = 256  # llm.npu's
PARTS = (Part.CHUNK, Part.SHARED, Part.ATTENTION)


def chunk_ends(prompt_tokens: int) -> tuple[int, ...]:
    """Positions up to the end of each chunk of a prompt that is filled up to whole chunks."""
    return tuple(range(CHUNK_TOKENS, -(-prompt_tokens // CHUNK_TOKENS) * CHUNK_TOKENS + 1, CHUNK_TOKENS))


def build(nodes: DecoderNodes, part: Part, end: int) -> None:
    """The nodes of one of PARTS, for the chunk that ends there."""
    {Part.CHUNK: _chunk, Part.SHARED: _shared, Part.ATTENTION: _attention}[part](nodes, end)


def _chunk(nodes: DecoderNodes, end: int) -> None:
    file, start = nodes.file, end - CHUNK_TOKENS
    cos, sin = (file.constant(table[None, start:, None]) for table in rotation_tables(nodes.shape, end))

    def attention(normed: str, prefix: str) -> str:
        q, keys, values = nodes.project(normed, prefix, cos, sin, 1, CHUNK_TOKENS)
        _give_back(nodes, keys, values)
        return _attend(nodes, q, keys, values, end)

    _hidden(nodes, nodes.layer(_input(nodes, "x", nodes.shape.hidden), 0, attention))


def _shared(nodes: DecoderNodes, end: int) -> None:
    shape, half = nodes.shape, (1, CHUNK_TOKENS, 1, nodes.shape.head_dim // 2)
    cos, sin = (nodes.file.input(name, "fp32", half) for name in ("cos", "sin"))
    attended = _input(nodes, "attended", shape.num_heads * shape.head_dim)

    def attention(normed: str, prefix: str) -> str:
        q, keys, values = nodes.project(normed, prefix, cos, sin, 1, CHUNK_TOKENS)
        nodes.file.output(q, "queries", nodes.dtype, (1, CHUNK_TOKENS, shape.num_heads, shape.head_dim))
        _give_back(nodes, keys, values)
        return attended

    _hidden(nodes, nodes.layer(_input(nodes, "x", shape.hidden), 0, attention))


def _attention(nodes: DecoderNodes, end: int) -> None:
    shape = nodes.shape
    q = nodes.file.input("queries", nodes.dtype, (1, CHUNK_TOKENS, shape.num_heads, shape.head_dim))
    kept = (1, shape.num_kv_heads, CHUNK_TOKENS, shape.head_dim)
    keys, values = (nodes.file.input(name, nodes.dtype, kept) for name in ("keys", "values"))
    attended = _attend(nodes, q, keys, values, end)
    nodes.file.output(attended, "attended", nodes.dtype, (1, CHUNK_TOKENS, shape.num_heads * shape.head_dim))


def _attend(nodes: DecoderNodes, q: str, keys: str, values: str, end: int) -> str:
    """Of the chunk's queries over all keys up to its end."""
    file, shape, start = nodes.file, nodes.shape, end - CHUNK_TOKENS
    groups = shape.num_heads // shape.num_kv_heads
    if start:
        past = (1, shape.num_kv_heads, start, shape.head_dim)
        keys, values = (
            file.node("Concat", file.input(f"past_{name}", nodes.dtype, past), own, axis=2)
            for name, own in (("keys", keys), ("values", values))
        )
    split = nodes.reshape(q, 1, CHUNK_TOKENS, shape.num_kv_heads, groups, shape.head_dim)
    turned = file.node("Transpose", split, perm=[0, 2, 3, 1, 4])
    flat = nodes.reshape(turned, 1, shape.num_kv_heads, groups * CHUNK_TOKENS, shape.head_dim)
    visible = np.arange(end)[None, :] <= np.arange(start, end)[:, None]
    attended = nodes.attend(flat, keys, values, file.constant(np.tile(visible, (groups, 1))[None, None]))
    parts = nodes.reshape(attended, 1, shape.num_kv_heads, groups, CHUNK_TOKENS, shape.head_dim)
    back = file.node("Transpose", parts, perm=[0, 3, 1, 2, 4])
    return nodes.reshape(back, 1, CHUNK_TOKENS, shape.num_heads * shape.head_dim)


def _input(nodes: DecoderNodes, name: str, width: int) -> str:
    return nodes.file.input(name, nodes.dtype, (1, CHUNK_TOKENS, width))


def _hidden(nodes: DecoderNodes, value: str) -> None:
    nodes.file.output(value, "hidden", nodes.dtype, (1, CHUNK_TOKENS, nodes.shape.hidden))


def _give_back(nodes: DecoderNodes, keys: str, values: str) -> None:
    kept = (1, nodes.shape.num_kv_heads, CHUNK_TOKENS, nodes.shape.head_dim)
    for name, value in (("new_keys", keys), ("new_values", values)):
        nodes.file.output(value, name, nodes.dtype, kept)
