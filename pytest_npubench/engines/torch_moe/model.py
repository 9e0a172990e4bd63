"""The decoder as one primitive: run layers [first, stop) over a ragged batch. Every scheduling policy is calls of it.

A layer adds attention of the normed hidden states, then experts of the normed sum (pre-norm, RMSNorm: arXiv
1910.07467).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.engines.torch_moe.attention import Kernel, Rotation, attention, inverse_frequencies, rotation
from pytest_npubench.engines.torch_moe.experts import dense_feed_forward, fuses, mix_experts, route
from pytest_npubench.engines.torch_moe.kv_cache import PagedKvCache
from pytest_npubench.engines.torch_moe.packing import packed
from pytest_npubench.engines.torch_moe.ragged import RaggedBatch
from pytest_npubench.engines.torch_moe.weights import LayerWeights, ModelWeights


@dataclass(frozen=True, slots=True, kw_only=True)
class PassInputs:
    """What all layers of a pass share: the batch, its positions as turns, and what the attention kernel prepared."""

    batch: RaggedBatch
    turn: Rotation
    prepared: Any


class MoeModel:
    """A decoder's weights on one device. It holds no request: batches and caches come from outside."""

    def __init__(self, shape: DecoderShape, weights: ModelWeights, kernel: Kernel) -> None:
        self._shape, self._weights, self._kernel = shape, packed(weights), kernel
        self.num_layers = shape.num_layers
        self._dtype = weights.embedding.dtype
        self._speeds, self._growth = inverse_frequencies(shape, weights.embedding.device)

    @property
    def launches_ahead(self) -> bool:
        """Whether a pass on CUDA never waits for the device: experts that are multiplied one by one are asked for."""
        return self._shape.is_dense or all(fuses(layer.gate_up) for layer in self._weights.layers)

    def prepare(self, batch: RaggedBatch) -> PassInputs:
        """Prepares a pass before any of its layers runs."""
        turn = rotation(self._speeds, self._growth, batch.positions, self._dtype)
        return PassInputs(batch=batch, turn=turn, prepared=self._kernel.prepare(batch))

    def prepare_static(self, batch: RaggedBatch, num_keys: int) -> PassInputs:
        """Prepares, as prepare() does, a static batch whose rows look back on num_keys tokens together, at most."""
        turn = rotation(self._speeds, self._growth, batch.positions, self._dtype)
        return PassInputs(batch=batch, turn=turn, prepared=self._kernel.prepare_static(batch, num_keys))

    @property
    def reads_pages(self) -> bool:
        return self._kernel.reads_pages

    def why_not_static(self, batch: RaggedBatch) -> str:
        """Why what the layers launch depends on the numbers of a static batch; empty where it does not."""
        if self._kernel.prepare_static(batch, batch.num_single) is None:
            return "attention in fp32 is padded to the longest context"
        if not self.launches_ahead:
            return "experts are multiplied one by one"
        return ""

    def embed(self, tokens: Tensor) -> Tensor:
        """Token ids [T] to hidden states [T, hidden]."""
        return F.embedding(tokens, self._weights.embedding)

    def run_layers(
        self, first: int, stop: int, hidden: Tensor, inputs: PassInputs, kv: PagedKvCache
    ) -> tuple[Tensor, Tensor | None]:
        """hidden [T, hidden] as it enters layer `first` to what leaves layer stop - 1, and the experts that each token
        chose, [stop - first, T, k]; None in a dense decoder."""
        chosen = []
        for index in range(first, stop):
            hidden, experts = self._layer(index, hidden, inputs, kv)
            chosen.append(experts)
        return hidden, None if self._shape.is_dense else torch.stack(chosen)

    def logits(self, hidden: Tensor) -> Tensor:
        """Returns the logits [T, vocab_size] of the last layer's output [T, hidden]."""
        return F.linear(self._norm(hidden, self._weights.final_norm), self._weights.head)

    def next_tokens(self, hidden: Tensor) -> Tensor:
        """Greedy token ids [T] of the last layer's output."""
        return self.logits(hidden).argmax(-1)

    def _layer(self, index: int, hidden: Tensor, inputs: PassInputs, kv: PagedKvCache) -> tuple[Tensor, Tensor]:
        shape, weights = self._shape, self._weights.layers[index]
        normed = self._norm(hidden, weights.attention_norm)
        hidden = hidden + attention(
            shape, index, weights, normed, inputs.batch, inputs.turn, self._kernel, inputs.prepared, kv
        )
        mixed, experts = self._feed_forward(weights, self._norm(hidden, weights.ffn_norm))
        return hidden + mixed, experts

    def _feed_forward(self, weights: LayerWeights, normed: Tensor) -> tuple[Tensor, Tensor]:
        if self._shape.is_dense:
            return dense_feed_forward(self._shape, weights, normed), normed.new_empty(0)
        experts, shares = route(self._shape, weights, normed)
        return mix_experts(self._shape, weights, normed, experts, shares), experts

    def _norm(self, hidden: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(hidden, (self._shape.hidden,), weight, self._shape.rms_eps)
