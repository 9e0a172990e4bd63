"""jax's own Pallas kernels for TPUs: ragged paged attention, and megablox's grouped product, which
visits the groups that have rows.

Both ask the machine for its chip, so that a compiler without one is told what to say (extensions/compilers).
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from pytest_npubench.engines.jax_moe.forward import Batch

PAGES_A_BLOCK = 8
QUERIES_A_BLOCK = 8, 32
VMEM_BYTES = 64 * 2**20
TILE_ROWS, TILE_WIDTH = 128, 1024


class TpuKernels:
    """forward.Kernels."""

    def attend(self, query: Any, pool: Any, batch: Batch, first_page: Any, num_single: int) -> Any:
        from jax.experimental.pallas.ops.tpu.ragged_paged_attention import ragged_paged_attention

        few, many = QUERIES_A_BLOCK
        return ragged_paged_attention(
            query,
            pool,
            batch.lengths,
            batch.pages + first_page,
            batch.starts,
            batch.num_sequences,
            sm_scale=query.shape[-1] ** -0.5,
            num_kv_pages_per_block=min(PAGES_A_BLOCK, batch.pages.shape[1]),
            num_queries_per_block=many if len(query) >= many else few,
            vmem_limit_bytes=VMEM_BYTES,
        )

    def multiply(self, rows: Any, matrices: Any, sizes: Any, first: Any) -> Any:
        from jax.experimental.pallas.ops.tpu.megablox.gmm import gmm

        every = lax.dynamic_update_slice(jnp.zeros(len(matrices), jnp.int32), sizes, (first,))
        _, width, out_width = matrices.shape
        # the kernel wants whole tiles of rows: the largest power of 2 that divides their number
        tile_rows = min(TILE_ROWS, len(rows) & -len(rows))
        tiling = (tile_rows, min(width, TILE_WIDTH), min(out_width, TILE_WIDTH))
        return gmm(rows, matrices, every, rows.dtype, tiling)
