"""Grouped-query attention of one layer (arXiv 2305.13245) with rotary positions and a paged KV cache.

Qwen3 norms every head of queries and keys; gpt-oss has biases, a sink for each head (a logit that takes its share of
the softmax and gives nothing) and a window of 128 tokens on layers 0, 2, 4 and so on.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_npubench.engines.rope import rope_frequencies, rope_growth
from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.engines.torch_moe.flash_attention import FlashAttention
from pytest_npubench.engines.torch_moe.kv_cache import PagedKvCache
from pytest_npubench.engines.torch_moe.packing import product
from pytest_npubench.engines.torch_moe.ragged import RaggedBatch
from pytest_npubench.engines.torch_moe.sdpa_attention import SdpaAttention
from pytest_npubench.engines.torch_moe.weights import LayerWeights


class Rotation(NamedTuple):
    """The rotation of T tokens: cosines [T, 1, D], and sines [T, 1, D] with the first half negated."""

    cos: Tensor
    sin: Tensor


def inverse_frequencies(shape: DecoderShape, device: torch.device) -> tuple[Tensor, float]:
    """Radians a position for each of the D/2 pairs, in fp32, and the growth of what is rotated."""
    return torch.from_numpy(rope_frequencies(shape)).to(device, torch.float32), rope_growth(shape)


def rotation(speeds: Tensor, growth: float, positions: Tensor, dtype: torch.dtype) -> Rotation:
    """What `rotate` needs for tokens at `positions` [T]."""
    angles = positions[:, None, None].float() * speeds
    cos, sin = angles.cos() * growth, angles.sin() * growth
    return Rotation(torch.cat((cos, cos), -1).to(dtype), torch.cat((-sin, sin), -1).to(dtype))


def rotate(heads: Tensor, by: Rotation) -> Tensor:
    """heads [T, N, D], turned; pair i is made of elements i and i + D/2 of a head."""
    return torch.addcmul(heads * by.cos, heads.roll(heads.shape[-1] // 2, -1), by.sin)


class Kernel(Protocol):
    """What attends: prepared once a pass, called once a layer."""

    def prepare(self, batch: RaggedBatch) -> Any: ...

    reads_pages: bool
    """Whether keys are read where they are in the cache, and not gathered first."""

    def prepare_static(self, batch: RaggedBatch, num_keys: int) -> Any | None:
        """Prepares a static batch of single-token rows that look back on num_keys tokens together, at most. It is None
        where what attend() launches depends on more than that."""
        ...

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        prepared: Any,
        kv: PagedKvCache,
        layer: int,
        window: int | None,
        sinks: Tensor | None,
    ) -> Tensor: ...


def attention_kernel(shape: DecoderShape, kv: PagedKvCache) -> Kernel:
    """The one place that chooses: FlashAttention wherever it runs, torch's own attention elsewhere."""
    if kv.keys.is_cuda and kv.keys.dtype in (torch.bfloat16, torch.float16):
        return FlashAttention(shape, kv)
    return SdpaAttention(shape, kv.keys.dtype)


def layer_window(shape: DecoderShape, layer: int) -> int | None:
    """Tokens a layer looks back on, oneself counted; None for all."""
    return shape.sliding_window if layer % 2 == 0 else None


def attention(
    shape: DecoderShape,
    layer: int,
    weights: LayerWeights,
    hidden: Tensor,
    batch: RaggedBatch,
    turn: Rotation,
    kernel: Kernel,
    prepared: Any,
    kv: PagedKvCache,
) -> Tensor:
    """hidden [T, hidden], normed, to what the layer adds to it. Keys and values of all rows go into the cache first."""
    num_heads, num_kv_heads = shape.num_heads, shape.num_kv_heads
    projected = product(hidden, weights.qkv, weights.qkv_bias)
    # [T, H + 2K, D]: queries and keys are normed and turned as one
    projected = projected.view(len(hidden), num_heads + 2 * num_kv_heads, shape.head_dim)
    turned, value = projected.split((num_heads + num_kv_heads, num_kv_heads), 1)
    if weights.qk_norm is not None:
        turned = F.rms_norm(turned, (shape.head_dim,), eps=shape.rms_eps) * weights.qk_norm
    query, key = rotate(turned, turn).split((num_heads, num_kv_heads), 1)
    kv.keys[layer].index_copy_(0, batch.slots, key)
    kv.values[layer].index_copy_(0, batch.slots, value)
    mixed = kernel.attend(query, key, value, prepared, kv, layer, layer_window(shape, layer), weights.sinks)
    return product(mixed.reshape(len(hidden), num_heads * shape.head_dim), weights.out, weights.out_bias)
