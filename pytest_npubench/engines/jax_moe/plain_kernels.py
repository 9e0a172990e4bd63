"""Attention and grouped products in jax.numpy, for the host: loops over tiles of rows that share what they read.

A tile begins where its group's rows begin or the tile before ends, and is of a fixed size: what it has beyond its group
is overwritten by the next tile, since tiles are written in order. Worked example: groups of 3 and 5 rows in tiles of 4
begin at 0, 3 and 7; row 3 is written by the first tile, then by the second, which is its own.

A tile of queries looks at KEYS keys at a time and keeps a running maximum and sum (arXiv 1805.02867), so that a context
of any length costs what it has.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from pytest_npubench.engines.jax_moe.forward import Batch
from pytest_npubench.engines.jax_moe.sizes import KEYS

QUERY_TILE = 32
ROW_TILES = 8, 64
NEVER = -1e30


class PlainKernels:
    """forward.Kernels."""

    def attend(self, query: Any, pool: Any, batch: Batch, first_page: Any, num_single: int) -> Any:
        def attended(tile: int, sequence: Any, start: Any, out: Any) -> Any:
            rows = lax.dynamic_slice_in_dim(padded, start, tile)
            positions = lax.dynamic_slice_in_dim(all_positions, start, tile)
            mixed = _attend(rows, positions, pool, batch.pages[sequence] + first_page, batch.lengths[sequence])
            return lax.dynamic_update_slice_in_dim(out, mixed, start, 0)

        padded = jnp.pad(query, ((0, QUERY_TILE), (0, 0), (0, 0)))
        all_positions = jnp.pad(batch.positions, (0, QUERY_TILE))
        num_live = jnp.count_nonzero(batch.ranks[:num_single])  # those in front
        out = lax.fori_loop(0, num_live, lambda row, out: attended(1, row, row, out), jnp.zeros_like(padded))
        if num_single == len(query):
            return out[: len(query)]
        sizes = (batch.starts[1:] - batch.starts[:-1])[num_single:]

        def prompt_tile(group: Any, start: Any, out: Any) -> Any:
            return attended(QUERY_TILE, num_single + group, num_single + start, out)

        return _tiled(sizes, QUERY_TILE, out, prompt_tile)[: len(query)]

    def multiply(self, rows: Any, matrices: Any, sizes: Any, first: Any) -> Any:
        least, most = ROW_TILES
        tile = min(max(least, 1 << (len(rows) // len(sizes)).bit_length()), most)
        padded = jnp.pad(rows, ((0, tile), (0, 0)))

        def product(group: Any, start: Any, out: Any) -> Any:
            matrix = lax.dynamic_index_in_dim(matrices, first + group, keepdims=False)
            multiplied = lax.dynamic_slice_in_dim(padded, start, tile) @ matrix
            return lax.dynamic_update_slice_in_dim(out, multiplied, start, 0)

        return _tiled(sizes, tile, jnp.zeros((len(padded), matrices.shape[2]), rows.dtype), product)[: len(rows)]


def _tiled(sizes: Any, tile: int, out: Any, write: Any) -> Any:
    """`out` after write(group, first row, out) of every tile, in order."""
    row_ends, tile_ends = jnp.cumsum(sizes), jnp.cumsum(-(-sizes // tile))

    def body(number: Any, out: Any) -> Any:
        group = jnp.searchsorted(tile_ends, number, side="right")
        in_group = number - tile_ends[group] + -(-sizes[group] // tile)
        return write(group, row_ends[group] - sizes[group] + in_group * tile, out)

    return lax.fori_loop(0, tile_ends[-1], body, out)


def _attend(query: Any, positions: Any, pool: Any, pages: Any, length: Any) -> Any:
    """query [Q, H, D] of one sequence at positions [Q] against its pages [P], of `length` tokens: [Q, H, D]."""
    num_queries, num_heads, width = query.shape
    _, page_size, combined, _ = pool.shape
    num_pages = max(1, KEYS // page_size)
    keys_a_step = num_pages * page_size
    grouped = query.reshape(num_queries, combined // 2, -1, width).astype(jnp.float32) / width**0.5

    def step(number: Any, carry: Any) -> Any:
        highest, total, mixed = carry
        lent = lax.dynamic_slice_in_dim(pages, number * num_pages, num_pages)
        key, value = jnp.moveaxis(pool[lent].reshape(keys_a_step, -1, 2, width).astype(jnp.float32), 2, 0)
        scores = jnp.einsum("qkgd,jkd->kgqj", grouped, key)
        visible = number * keys_a_step + jnp.arange(keys_a_step) <= positions[:, None]
        scores = jnp.where(visible, scores, NEVER)
        higher = jnp.maximum(highest, scores.max(-1))
        weights, shrunk = jnp.exp(scores - higher[..., None]), jnp.exp(highest - higher)
        mixed = mixed * shrunk[..., None] + jnp.einsum("kgqj,jkd->kgqd", weights, value)
        return higher, total * shrunk + weights.sum(-1), mixed

    empty = jnp.zeros((*grouped.shape[1:3], num_queries), jnp.float32)
    start = (empty + NEVER, empty, jnp.zeros((*empty.shape, width), jnp.float32))
    looked_at = jnp.minimum(length, positions.max() + 1)
    _, total, mixed = lax.fori_loop(0, -(-looked_at // keys_a_step), step, start)
    attended = jnp.moveaxis(mixed / total[..., None], 2, 0).reshape(num_queries, num_heads, width)
    return attended.astype(query.dtype)
