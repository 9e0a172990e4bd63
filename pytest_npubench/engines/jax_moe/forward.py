"""Layers [first, stop) of a decoder over a batch of a fixed size, as one static program: every policy is calls of it.

first and stop are scalars of a loop over layers, so that chunked, layered and hybrid prefill of any layer group run
the same binary, which has the code of one layer. No kernel is given a slice of a stacked array, which XLA would copy:
keys and values of all layers are one pool of pages, in which layer i's begin at i times the pages of a layer, and the
experts of all layers are one stack, of which a grouped product reads the matrices of the groups that have rows.

Hidden states lie on the device by slot of the KV cache: a row's states leave one call there and enter the next one from
there, in this iteration or a later one.

Shapes: T tokens, N sequences, P pages of a sequence; L layers, E experts (of this device), k chosen by each token.

Worked number: qwen3-30b-a3b in bf16 keeps 2048 x 2 bytes of states for each slot, 4 % of the slot's keys and values.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import lax

from pytest_npubench.engines.jax_dense.layers import rms_norm, rope
from pytest_npubench.engines.probe import fixed_tokens
from pytest_npubench.engines.rope import rope_frequencies
from pytest_npubench.engines.shapes import DecoderShape

AXIS = "devices"
FILLING, PADDING, COUNTED = 0, 1, 2
Weights = dict[str, Any]


class Batch(NamedTuple):
    """tokens, positions, slots and ranks [T]: FILLING rows make up the size, PADDING rows are of a static batch,
    COUNTED ones of requests. lengths [N] are the tokens that a sequence looks back on, its own included; pages [N, P]
    its pages; starts [N + 1] where its tokens begin; num_sequences [1] how many there are. The sequences of one token
    come first, so that sequence i is token i."""

    tokens: Any
    positions: Any
    slots: Any
    ranks: Any
    lengths: Any
    pages: Any
    starts: Any
    num_sequences: Any


class State(NamedTuple):
    """What stays on the device: pool [L x pages, page, 2K, D], a head's key in front of its value; hidden [slots of a
    layer, hidden]."""

    pool: Any
    hidden: Any


class Kernels(Protocol):
    """What attends and multiplies; num_single sequences of a batch have one token."""

    def attend(self, query: Any, pool: Any, batch: Batch, first_page: Any, num_single: int) -> Any:
        """query [T, H, D] of the pool's pages from first_page on: [T, H, D]. What FILLING tokens get is left open."""
        ...

    def multiply(self, rows: Any, matrices: Any, sizes: Any, first: Any) -> Any:
        """rows [M, in] in groups of sizes [E], each by its matrix of matrices [L x E, in, out] from `first` on: [M,
        out]. What rows behind all groups get is left open."""
        ...


def run_layers(
    shape: DecoderShape,
    kernels: Kernels,
    num_single: int,
    weights: Weights,
    state: State,
    batch: Batch,
    first: Any,
    stop: Any,
) -> tuple[State, Any]:
    """The state with the batch's keys, values and hidden states as they leave layer stop - 1, and the experts that the
    layers loaded [2]: for COUNTED rows, and for PADDING ones as well."""
    embedded = weights["embedding"][batch.tokens]
    hidden = jnp.where(first == 0, embedded, state.hidden[batch.slots])

    def layer(index: Any, carry: Any) -> Any:
        hidden, pool, loaded = carry
        normed = rms_norm(hidden, weights["attention_norm"][index], shape.rms_eps)
        added, pool = _attention(shape, kernels, num_single, weights, index, normed, pool, batch)
        hidden = hidden + lax.psum(added, AXIS)
        normed = rms_norm(hidden, weights["ffn_norm"][index], shape.rms_eps)
        added, num_experts = _feed_forward(shape, kernels, weights, index, normed, batch.ranks)
        return hidden + lax.psum(added, AXIS), pool, loaded + num_experts

    hidden, pool, loaded = lax.fori_loop(first, stop, layer, (hidden, state.pool, jnp.zeros(2, jnp.int32)))
    return State(pool, state.hidden.at[batch.slots].set(hidden)), lax.psum(loaded, AXIS)


def next_tokens(shape: DecoderShape, weights: Weights, hidden: Any, slots: Any) -> tuple[Any, Any]:
    """Of the last layer's output at slots [R] the greedy tokens [R], and the logits of a few fixed ones beside them."""
    normed = rms_norm(hidden[slots], weights["final_norm"], shape.rms_eps)
    head = weights.get("head", weights["embedding"])
    logits = jnp.einsum("rm,vm->rv", normed, head, preferred_element_type=jnp.float32)
    return jnp.argmax(logits, -1).astype(jnp.int32), logits[:, jnp.array(fixed_tokens(shape.vocab_size))]


def _attention(
    shape: DecoderShape,
    kernels: Kernels,
    num_single: int,
    weights: Weights,
    index: Any,
    normed: Any,
    pool: Any,
    batch: Batch,
) -> tuple[Any, Any]:
    """What the heads of this device add [T, hidden], and the pool with their keys and values."""

    def heads(name: str, norm: str | None = None) -> Any:
        projected = (normed @ weights[name][index]).reshape(len(normed), -1, shape.head_dim)
        if norm is None:
            return projected
        if shape.qk_norm:
            projected = rms_norm(projected, weights[norm][index], shape.rms_eps)
        return rope(projected, batch.positions, rope_frequencies(shape))

    query, key, value = heads("wq", "q_norm"), heads("wk", "k_norm"), heads("wv")
    _, page_size, *rest = pool.shape
    first_page = index * (len(pool) // shape.num_layers)
    slots = pool.reshape(-1, *rest)
    slots = slots.at[batch.slots + first_page * page_size].set(jnp.stack([key, value], 2).reshape(len(key), *rest))
    pool = slots.reshape(pool.shape)
    attended = kernels.attend(query, pool, batch, first_page, num_single)
    attended = jnp.where((batch.ranks == FILLING)[:, None], 0, attended.reshape(len(query), -1))
    return attended @ weights["wo"][index], pool


def _feed_forward(
    shape: DecoderShape, kernels: Kernels, weights: Weights, index: Any, normed: Any, ranks: Any
) -> tuple[Any, Any]:
    """What the feed-forward blocks of this device add [T, hidden], and how many experts that loaded [2]."""
    if shape.is_dense:
        gated = jax.nn.silu(normed @ weights["w_gate"][index]) * (normed @ weights["w_up"][index])
        return gated @ weights["w_down"][index], jnp.zeros(2, jnp.int32)
    logits = (normed @ weights["router"][index] + weights["router_bias"][index]).astype(jnp.float32)
    chosen, experts = lax.top_k(logits, shape.experts_per_token)
    shares = jax.nn.softmax(chosen, -1).astype(normed.dtype)
    num_experts = weights["w_gate"].shape[1]
    here = experts - lax.axis_index(AXIS) * num_experts
    is_here = (here >= 0) & (here < num_experts)

    def groups(least: int) -> tuple[Any, Any]:
        """Each choice's group [T x k] and the groups' sizes [E] of rows of this rank; others go behind all groups."""
        group = jnp.where(is_here & (ranks >= least)[:, None], here, num_experts).reshape(-1)
        return group, jnp.zeros(num_experts + 1, jnp.int32).at[group].add(1)[:num_experts]

    group, sizes = groups(PADDING)
    order = jnp.argsort(group)
    rows = normed[order // shape.experts_per_token]

    def multiplied(rows: Any, name: str) -> Any:
        stack = weights[name]
        return kernels.multiply(rows, stack.reshape(-1, *stack.shape[2:]), sizes, index * num_experts)

    outputs = multiplied(jax.nn.silu(multiplied(rows, "w_gate")) * multiplied(rows, "w_up"), "w_down")
    outputs = jnp.where((jnp.arange(len(rows)) < sizes.sum())[:, None], outputs, 0)
    # back to the tokens' order, in which a sum does not depend on what else is in the batch
    by_token = outputs[jnp.argsort(order)].reshape(*experts.shape, -1)
    loaded = jnp.stack([jnp.count_nonzero(groups(COUNTED)[1]), jnp.count_nonzero(sizes)])
    return jnp.einsum("tk,tkm->tm", shares, by_token), loaded.astype(jnp.int32)
