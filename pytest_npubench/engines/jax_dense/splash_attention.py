"""Causal attention of a prompt by jax's splash attention kernel for TPUs, on every device's own heads.

The kernel computes softmax(q k^T) v block by block in on-chip memory and leaves out the blocks above the diagonal. It
wants sequences of whole lanes (128 positions), so shorter and uneven buckets are padded: a key behind the prompt is
behind every query, and no query sees it.
Source: jax/experimental/pallas/ops/tpu/splash_attention.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from jax.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask import CausalMask, MultiHeadMask
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from pytest_npubench.engines.jax_dense.weights import AXIS

LANES = 128
MAX_BLOCK = 512  # queries and keys a block: 1 MiB of float32 scores on the chip


def attend_splash(mesh: Mesh, q: jax.Array, k: jax.Array, v: jax.Array, *, interpret: bool = False) -> jax.Array:
    """q [1, S, H, D], k and v [1, K, S, D] -> [1, S, H, D], heads split over the mesh.

    `interpret` runs the kernel's program without a TPU, slowly.
    """
    length = q.shape[1]
    scaled = jnp.swapaxes(q[0] / math.sqrt(q.shape[-1]), 0, 1)
    padding = ((0, 0), (0, padded_length(length) - length), (0, 0))
    padded = [jnp.pad(array, padding) for array in (scaled, k[0], v[0])]
    heads = P(AXIS)

    def attend_own_heads(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return _kernel(*q.shape[:2], interpret=interpret)(q, k, v)

    attend = jax.shard_map(attend_own_heads, mesh=mesh, in_specs=(heads,) * 3, out_specs=heads, check_vma=False)
    return jnp.swapaxes(attend(*padded)[:, :length], 0, 1)[None]


def padded_length(length: int) -> int:
    """The length in whole lanes."""
    return length + -length % LANES


def block_length(length: int) -> int:
    """Queries and keys of a block, of a padded prompt."""
    return math.gcd(length, MAX_BLOCK)


def _kernel(num_heads: int, length: int, *, interpret: bool) -> splash.SplashAttentionKernel:
    """The kernel for queries [H, S, D], keys and values [K, S, D]."""
    block = block_length(length)
    return splash.make_splash_mha(
        MultiHeadMask([CausalMask((length, length))] * num_heads),
        block_sizes=splash.BlockSizes(block_q=block, block_kv=block),
        head_shards=1,
        q_seq_shards=1,
        interpret=interpret,
    )
