"""The three static graphs of a bucketed decoder: prefill one prompt, decode one step of the batch, move to a bucket.

# N = compiled batch size, b = bucket, K = key-value heads, D = head_dim, L = layers
Prefill and decode take the `State` donated and give it back, so they write in place; move writes into the caches of
the other bucket, also donated.

Life of a row: prefill writes its prompt to positions 0..l_in-1 and emits token 1; decode step t writes that token at
position l_in + t, so the KV length it attends to is c_t = l_in + t + 1 (LENS, Eq. 3). Pad positions behind a prompt
hold keys nobody sees: a row attends to positions up to its own only, and overwrites them as it grows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pytest_npubench.engines.jax_dense.graph_form import PORTABLE, GraphForm
from pytest_npubench.engines.jax_dense.layers import attend_step, feed_forward, project_qkv, rms_norm
from pytest_npubench.engines.jax_dense.weights import Weights
from pytest_npubench.engines.probe import fixed_tokens
from pytest_npubench.engines.shapes import DecoderShape


class Caches(NamedTuple):
    """Keys and values of one batch in one bucket: L arrays [N, K, b, D] each. A NamedTuple, so a tree for jax."""

    keys: tuple[Any, ...]
    values: tuple[Any, ...]


class DecoderState(NamedTuple):
    """What lives on the device between steps: the caches, each row's last token [N] and its length in the cache [N],
    and the logits of a few fixed tokens that this token was chosen beside [N, NUM_FIXED], fetched by a check alone."""

    caches: Caches
    tokens: Any
    lengths: Any
    fixed_logits: Any = None


def prefill(
    shape: DecoderShape,
    weights: Weights,
    state: DecoderState,
    prompt: jax.Array,
    length: jax.Array,
    row: jax.Array,
    *,
    form: GraphForm = PORTABLE,
) -> DecoderState:
    """Run one padded prompt [b] of true `length`, write its keys and values into `row`, emit the row's first token."""
    hidden, caches = prefill_hidden(shape, weights, state.caches, prompt, length, row, form=form)
    token, fixed = _chosen(shape, weights, hidden)
    tokens = jax.lax.dynamic_update_slice(state.tokens, token, (row,))
    lengths = jax.lax.dynamic_update_slice(state.lengths, length[None], (row,))
    return DecoderState(caches, tokens, lengths, jax.lax.dynamic_update_slice(state.fixed_logits, fixed, (row, 0)))


def prefill_hidden(
    shape: DecoderShape,
    weights: Weights,
    caches: Caches,
    prompt: jax.Array,
    length: jax.Array,
    row: jax.Array,
    *,
    form: GraphForm = PORTABLE,
) -> tuple[jax.Array, Caches]:
    """Hidden state [1, hidden] of the prompt's last true token, and the caches with the prompt in `row`."""
    x = weights["embedding"][prompt][None]
    positions = jnp.arange(prompt.shape[0])[None]
    keys, values = list(caches.keys), list(caches.values)
    for index, layer in enumerate(weights["layers"]):
        normed = rms_norm(x, layer["attention_norm"], shape.rms_eps)
        q, k, v = project_qkv(layer, normed, positions, shape)
        k, v = jnp.swapaxes(k, 1, 2), jnp.swapaxes(v, 1, 2)
        keys[index] = jax.lax.dynamic_update_slice(keys[index], k, (row, 0, 0, 0))
        values[index] = jax.lax.dynamic_update_slice(values[index], v, (row, 0, 0, 0))
        x = add_feed_forward(layer, add_attended(layer, x, form.attend_prompt(q, k, v)), shape, form.keeps_gated)
        if form.layers_a_sum and (index + 1) % form.layers_a_sum == 0 and index + 1 < shape.num_layers:
            x = jax.lax.optimization_barrier(x)
    return jax.lax.dynamic_index_in_dim(x, length - 1, axis=1, keepdims=False), Caches(tuple(keys), tuple(values))


def decode(shape: DecoderShape, weights: Weights, state: DecoderState, *, form: GraphForm = PORTABLE) -> DecoderState:
    """Advance every row of the batch by one token."""
    hidden, caches = decode_hidden(shape, weights, state, form=form)
    tokens, fixed = _chosen(shape, weights, hidden)
    return DecoderState(caches, tokens, state.lengths + 1, fixed)


def decode_hidden(
    shape: DecoderShape, weights: Weights, state: DecoderState, *, form: GraphForm = PORTABLE
) -> tuple[jax.Array, Caches]:
    """Hidden states [N, hidden] of every row's last token, and the caches with that token written."""
    x = weights["embedding"][state.tokens][:, None]
    keys, values = list(state.caches.keys), list(state.caches.values)
    for index, layer in enumerate(weights["layers"]):
        normed = rms_norm(x, layer["attention_norm"], shape.rms_eps)
        q, k, v = project_qkv(layer, normed, state.lengths[:, None], shape)
        keys[index] = form.write_step(keys[index], k[:, 0], state.lengths)
        values[index] = form.write_step(values[index], v[:, 0], state.lengths)
        attended = attend_step(q, keys[index], values[index], state.lengths + 1)
        x = add_feed_forward(layer, add_attended(layer, x, attended), shape)
    return x[:, 0], Caches(tuple(keys), tuple(values))


def move(source: Caches, target: Caches) -> Caches:
    """Copies a batch's keys and values, at its positions, into the (donated) caches of another bucket."""
    return Caches(*(tuple(map(_copied, parts, whole)) for parts, whole in zip(source, target, strict=True)))


def _copied(part: jax.Array, whole: jax.Array) -> jax.Array:
    length = min(part.shape[2], whole.shape[2])
    return jax.lax.dynamic_update_slice(whole, jax.lax.slice_in_dim(part, 0, length, axis=2), (0, 0, 0, 0))


def logits(shape: DecoderShape, weights: Weights, hidden: jax.Array) -> jax.Array:
    """Logits [B, vocab] in float32 of last hidden states [B, hidden]."""
    table = weights["embedding"] if shape.tied_embeddings else weights["head"]
    normed = rms_norm(hidden, weights["final_norm"], shape.rms_eps)
    return jnp.einsum("bm,vm->bv", normed, table, preferred_element_type=jnp.float32)


def greedy(shape: DecoderShape, weights: Weights, hidden: jax.Array) -> jax.Array:
    """The most likely tokens [B], int32."""
    return _chosen(shape, weights, hidden)[0]


def _chosen(shape: DecoderShape, weights: Weights, hidden: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The most likely tokens [B], int32, and the logits of probe.fixed_tokens() [B, NUM_FIXED] from the same step."""
    all_logits = logits(shape, weights, hidden)
    fixed = jnp.take(all_logits, jnp.array(fixed_tokens(shape.vocab_size)), axis=-1, mode="clip")
    return jnp.argmax(all_logits, axis=-1).astype(jnp.int32), fixed


def add_attended(layer: Weights, x: jax.Array, attended: jax.Array) -> jax.Array:
    """x [B, S, hidden] and what attention gave [B, S, H, D], through its output weights."""
    return x + attended.reshape(*x.shape[:2], -1) @ layer["wo"]


def add_feed_forward(layer: Weights, x: jax.Array, shape: DecoderShape, keeps_gated: bool = False) -> jax.Array:
    """x [B, S, hidden] and the feed-forward part of it."""
    return x + feed_forward(layer, rms_norm(x, layer["ffn_norm"], shape.rms_eps), keeps_gated=keeps_gated)
