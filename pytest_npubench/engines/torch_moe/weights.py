"""Weights of a decoder with experts: the records, and seeded random ones with a router as skewed as a trained one.

Random projections have variance 1/fan-in. A router of nothing but random weights would choose experts evenly, which no
trained one does (128 experts, 8 a token: a batch of 8 then covers 40 % of them where 29 % were measured). So each layer
gets a fixed bias an expert, b from N(0, 1.4^2), beside logits that vary over tokens with a spread of
1.7 exp(-0.1 b / 1.4). Both figures are fitted to Layered Prefill's Table 1, coverage of Qwen3-30B-A3B by decode batches
of 1 to 256, with a root mean square error of about 2 points. (Gumbel noise fits with a spread of 1.28, pi / sqrt 6;
what a matrix makes of a hidden state is normal, has thinner tails, and has to spread further.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from pytest_npubench.engines.moe_shapes import MoeShape

ROUTER_BIAS_SPREAD = 1.4
ROUTER_SPREAD = 1.7
ROUTER_TAPER = 0.1
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


def random_weights(shape: MoeShape, *, seed: int, device: torch.device, dtype: torch.dtype) -> ModelWeights:
    """All weights from one seed. On another kind of device, or in another dtype, they are others."""
    random = _Random(seed, device, dtype)
    embedding = random.projection(shape.vocab_size, shape.hidden)
    return ModelWeights(
        embedding=embedding,
        layers=tuple(_random_layer(shape, random) for _ in range(shape.num_layers)),
        final_norm=random.ones(shape.hidden),
        head=embedding if shape.tied_embeddings else random.projection(shape.vocab_size, shape.hidden),
    )


def _random_layer(shape: MoeShape, random: _Random) -> LayerWeights:
    hidden, width, experts = shape.hidden, shape.expert_intermediate, shape.num_experts
    qkv_rows = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim
    is_gpt_oss = shape.architecture == "gpt-oss"

    def bias(*dims: int) -> Tensor | None:
        return random.normal(*dims, spread=BIAS_SPREAD) if is_gpt_oss else None

    router, router_bias = (None, None) if shape.is_dense else _random_router(shape, random)
    return LayerWeights(
        attention_norm=random.ones(hidden),
        qkv=random.projection(qkv_rows, hidden),
        qkv_bias=bias(qkv_rows),
        out=random.projection(hidden, shape.num_heads * shape.head_dim),
        out_bias=bias(hidden),
        qk_norm=None if is_gpt_oss else random.ones(shape.num_heads + shape.num_kv_heads, shape.head_dim),
        sinks=random.normal(shape.num_heads, spread=1.0) if is_gpt_oss else None,
        ffn_norm=random.ones(hidden),
        router=router,
        router_bias=router_bias,
        gate_up=random.projection(experts, 2 * width, hidden),
        gate_up_bias=bias(experts, 2 * width),
        down=random.projection(experts, hidden, width),
        down_bias=bias(experts, hidden),
    )


def _random_router(shape: MoeShape, random: _Random) -> tuple[Tensor, Tensor]:
    """A normed hidden state has a mean square of 1, so that rows of spread s / sqrt(hidden) give logits of spread s."""
    unit = random.normal(shape.num_experts, spread=1.0)
    spread = ROUTER_SPREAD * torch.exp(-ROUTER_TAPER * unit)
    return random.projection(shape.num_experts, shape.hidden) * spread[:, None], ROUTER_BIAS_SPREAD * unit
