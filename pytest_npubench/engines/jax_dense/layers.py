"""The parts of a Llama-family decoder layer, in plain jax.numpy.

# B = rows of the batch, S = query positions, T = key positions, H = query heads, K = key-value heads, D = head_dim
# Activations are [B, S, heads, D]; cached keys and values [B, K, T, D], so that one head's keys lie together.
Sources: RMSNorm arXiv 1910.07467, RoPE 2104.09864, GQA 2305.13245, SwiGLU 2002.05202.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from pytest_npubench.engines.rope import Frequencies, rope_frequencies
from pytest_npubench.engines.shapes import DecoderShape

Layer = Mapping[str, jax.Array]


def rms_norm(x: jax.Array, weight: jax.Array, eps: float) -> jax.Array:
    """x / rms(x) * weight, the mean square taken in float32. x [..., width], weight [width]."""
    wide = x.astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + eps)
    return (wide * scale).astype(x.dtype) * weight


def rope(x: jax.Array, positions: jax.Array, frequencies: Frequencies) -> jax.Array:
    """Rotate the two halves of each head by its position. x [B, S, heads, D], positions [B, S]."""
    angles = positions[..., None, None].astype(jnp.float32) * frequencies.astype(np.float32)
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    low, high = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1).astype(x.dtype)


def project_qkv(
    layer: Layer, x: jax.Array, positions: jax.Array, shape: DecoderShape
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Queries [B, S, H, D], keys and values [B, S, K, D] of normalised hidden states x [B, S, hidden], rotated."""
    rows, length, _ = x.shape
    q = (x @ layer["wq"]).reshape(rows, length, shape.num_heads, shape.head_dim)
    k = (x @ layer["wk"]).reshape(rows, length, shape.num_kv_heads, shape.head_dim)
    v = (x @ layer["wv"]).reshape(rows, length, shape.num_kv_heads, shape.head_dim)
    if shape.qk_norm:
        q, k = rms_norm(q, layer["q_norm"], shape.rms_eps), rms_norm(k, layer["k_norm"], shape.rms_eps)
    frequencies = rope_frequencies(shape)
    return rope(q, positions, frequencies), rope(k, positions, frequencies), v


def write_rows(cache: jax.Array, new: jax.Array, lengths: jax.Array) -> jax.Array:
    """The cache [B, K, T, D] with each row's new token [B, K, D] at its length [B], one update a row.

    A row that has outgrown the cache ended before: its token overwrites its own last position, which nobody reads.
    """
    for row in range(new.shape[0]):
        cache = jax.lax.dynamic_update_slice(cache, new[row, None, :, None], (row, 0, lengths[row], 0))
    return cache


def scatter_rows(cache: jax.Array, new: jax.Array, lengths: jax.Array) -> jax.Array:
    """Writes as write_rows() does, in one scatter; values that a row has no room for are dropped."""
    return cache.at[jnp.arange(new.shape[0]), :, lengths].set(new, mode="drop")


def attend_step(q: jax.Array, k: jax.Array, v: jax.Array, lengths: jax.Array) -> jax.Array:
    """One query a row against its cache: q [B, 1, H, D], k and v [B, K, T, D]; a row sees its first lengths[B] keys."""
    rows, _, heads, width = q.shape
    kv_heads = k.shape[1]
    grouped = q.reshape(rows, kv_heads, heads // kv_heads, width)
    visible = jnp.arange(k.shape[2])[None, :] < lengths[:, None]
    return _softmax_weighted(grouped, k, v, visible[:, None, None]).reshape(q.shape)


def attend_causal(q: jax.Array, k: jax.Array, v: jax.Array, block: int = 256) -> jax.Array:
    """Causal attention of a whole prompt: q [B, S, H, D], k and v [B, K, S, D].

    `block` queries at a time over the keys up to the block's end: scores stay [K, G*block, S] in memory (G = H/K), and
    the half of them above the diagonal is hardly ever computed. Each block's result takes its queries' place, so that a
    block waits for the one before: XLA's CPU compiler otherwise runs them at once and keeps the scores of all, and
    what a run needs beyond 32 MiB glibc gives back to the kernel after it and takes page by page in the next one.
    """
    rows, length, heads, width = q.shape
    queries = jnp.moveaxis(q.reshape(rows, length, k.shape[1], heads // k.shape[1], width), 1, 3)  # [B, K, G, S, D]
    for start in range(0, length, block):
        attended = _attend_block(queries[:, :, :, start : start + block], k, v, start)
        queries = jax.lax.dynamic_update_slice(queries, attended, (0, 0, 0, start, 0))
    return jnp.moveaxis(queries, 3, 1).reshape(q.shape)


def _attend_block(queries: jax.Array, k: jax.Array, v: jax.Array, start: int) -> jax.Array:
    """Queries [B, K, G, S, D] at positions start.. against the keys up to their last one."""
    rows, kv_heads, groups, block, width = queries.shape
    end = start + block
    visible = jnp.tile(jnp.arange(end)[None, :] <= jnp.arange(start, end)[:, None], (groups, 1))
    flat = queries.reshape(rows, kv_heads, groups * block, width)
    return _softmax_weighted(flat, k[:, :, :end], v[:, :, :end], visible).reshape(queries.shape)


def _softmax_weighted(q: jax.Array, k: jax.Array, v: jax.Array, visible: jax.Array) -> jax.Array:
    """softmax(q k^T / sqrt(D)) v, in float32. q [B, K, Q, D], k and v [B, K, T, D], visible fits [B, K, Q, T]."""
    scores = jnp.einsum("bkqd,bktd->bkqt", q, k, preferred_element_type=jnp.float32) / math.sqrt(q.shape[-1])
    weights = jax.nn.softmax(jnp.where(visible, scores, jnp.finfo(jnp.float32).min), axis=-1)
    return jnp.einsum("bkqt,bktd->bkqd", weights.astype(v.dtype), v)


def feed_forward(layer: Layer, x: jax.Array, *, keeps_gated: bool = False) -> jax.Array:
    """SwiGLU: down(silu(gate(x)) * up(x)). x [B, S, hidden]. keeps_gated: the compiler may not put `down` and `up` into
    one kernel."""
    gated = jax.nn.silu(x @ layer["w_gate"]) * (x @ layer["w_up"])
    return (jax.lax.optimization_barrier(gated) if keeps_gated else gated) @ layer["w_down"]
