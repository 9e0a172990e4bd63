"""Weights of a decoder with experts: the records, and seeded random ones with a router as skewed as a trained one.

Random projections have variance 1/fan-in; the router's skew is engines/random_tensors.py's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from pytest_npubench.engines.random_tensors import ROUTER_BIAS_SPREAD, ROUTER_SPREAD, ROUTER_TAPER
from pytest_npubench.engines.shapes import DecoderShape

BIAS_SPREAD = 0.02


Matrices: TypeAlias = "Tensor | tuple[Tensor, ...]"
"""E matrices [out, in]: one tensor [E, out, in], or each in a layout of its own (packing.py)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWeights:
    """H query heads and K key-value heads of D, E experts of width I. None is what the architecture does not have.

    qkv [(H + 2K) D, hidden], out [hidden, H D]; qk_norm [H + K, D], the same row for all heads of a kind; sinks [H];
    router [E, hidden] and router_bias [E]; gate_up [E, 2I, hidden], gates first; down [E, hidden, I].
    A dense decoder has E = 1 and no router.
    """

    attention_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    out: Tensor
    out_bias: Tensor | None
    qk_norm: Tensor | None
    sinks: Tensor | None
    ffn_norm: Tensor
    router: Tensor | None
    router_bias: Tensor | None
    gate_up: Matrices
    gate_up_bias: Tensor | None
    down: Matrices
    down_bias: Tensor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWeights:
    """embedding and head [vocab_size, hidden], one tensor where they are tied; final_norm [hidden]."""

    embedding: Tensor
    layers: tuple[LayerWeights, ...]
    final_norm: Tensor
    head: Tensor


class _Random:
    """Tensors of one seeded stream, made on the device that keeps them."""

    def __init__(self, seed: int, device: torch.device, dtype: torch.dtype) -> None:
        self._generator = torch.Generator(device).manual_seed(seed)
        self._device, self._dtype = device, dtype

    def normal(self, *dims: int, spread: float) -> Tensor:
        empty = torch.empty(dims, device=self._device, dtype=self._dtype)
        return empty.normal_(0, spread, generator=self._generator)

    def projection(self, *dims: int) -> Tensor:
        return self.normal(*dims, spread=1 / math.sqrt(dims[-1]))

    def ones(self, *dims: int) -> Tensor:
        return torch.ones(dims, device=self._device, dtype=self._dtype)


def random_weights(shape: DecoderShape, *, seed: int, device: torch.device, dtype: torch.dtype) -> ModelWeights:
    """All weights from one seed. Another kind of device or another dtype gives other weights."""
    random = _Random(seed, device, dtype)
    embedding = random.projection(shape.vocab_size, shape.hidden)
    return ModelWeights(
        embedding=embedding,
        layers=tuple(_random_layer(shape, random) for _ in range(shape.num_layers)),
        final_norm=random.ones(shape.hidden),
        head=embedding if shape.tied_embeddings else random.projection(shape.vocab_size, shape.hidden),
    )


def _random_layer(shape: DecoderShape, random: _Random) -> LayerWeights:
    hidden, width, experts = shape.hidden, shape.intermediate, shape.num_experts
    qkv_rows = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim
    is_gpt_oss = shape.architecture == "gpt-oss"
    has_qkv_bias = is_gpt_oss or shape.qkv_bias

    def bias(*dims: int) -> Tensor | None:
        return random.normal(*dims, spread=BIAS_SPREAD) if is_gpt_oss else None

    router, router_bias = (None, None) if shape.is_dense else _random_router(shape, random)
    return LayerWeights(
        attention_norm=random.ones(hidden),
        qkv=random.projection(qkv_rows, hidden),
        qkv_bias=random.normal(qkv_rows, spread=BIAS_SPREAD) if has_qkv_bias else None,
        out=random.projection(hidden, shape.num_heads * shape.head_dim),
        out_bias=bias(hidden),
        qk_norm=random.ones(shape.num_heads + shape.num_kv_heads, shape.head_dim) if shape.qk_norm else None,
        sinks=random.normal(shape.num_heads, spread=1.0) if is_gpt_oss else None,
        ffn_norm=random.ones(hidden),
        router=router,
        router_bias=router_bias,
        gate_up=random.projection(experts, 2 * width, hidden),
        gate_up_bias=bias(experts, 2 * width),
        down=random.projection(experts, hidden, width),
        down_bias=bias(experts, hidden),
    )


def _random_router(shape: DecoderShape, random: _Random) -> tuple[Tensor, Tensor]:
    """A normed hidden state has a mean square of 1, so that rows of spread s / sqrt(hidden) give logits of spread s."""
    unit = random.normal(shape.num_experts, spread=1.0)
    spread = ROUTER_SPREAD * torch.exp(-ROUTER_TAPER * unit)
    return random.projection(shape.num_experts, shape.hidden) * spread[:, None], ROUTER_BIAS_SPREAD * unit
