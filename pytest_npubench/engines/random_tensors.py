"""The tensors of a Hugging Face checkpoint of a shape, by name, and seeded random values for them.

What is asked of the values: greedy tokens that depend on the context and do not settle on one token, and a router as
skewed as a trained one. Random weights with variance 1/fan-in give neither where embeddings are tied.

- Embeddings have variance 1 and each branch adds its share, so that the hidden state's mean square in front of layer l
  of L is about 1 + GROWTH l / L: known without running the model.
- Column 0 of the embedding is 1 for every token, and no branch writes there. A router without a bias term has one all
  the same: what its column 0 makes of that 1. The biases are N(0, 1.4^2), the logits' own spread 1.7 exp(-0.1 b / 1.4):
  fitted to Layered Prefill's Table 1, coverage of Qwen3-30B-A3B by decode batches of 1 to 256, to about 2 points.
  Worked number: a bias of 1.4 in the middle of the layers is a weight of 1.4 sqrt(1 + 4.5 / 2) = 2.5, since the norm in
  front of the router divides the 1 by about sqrt(3.25).
- The final norm's weights are +1 and -1 in turn, so that a tied head does not find the last token most like itself.

Every tensor has a stream of its own, of the seed and its name.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pytest_npubench.engines.safetensors_file import Floats
from pytest_npubench.engines.shapes import DecoderShape

FEED_FORWARD_GROWTH = 4.0
ATTENTION_GROWTH = 1.0  # at most: of values averaged over n tokens a part is left
GROWTH = FEED_FORWARD_GROWTH + 0.5 * ATTENTION_GROWTH
SHARPNESS = 1.5  # scores spread by its square, so that attention picks a few tokens of hundreds
SWIGLU_MEAN_SQUARE = 0.356  # of silu(g) u, g and u from N(0, 1)
SHARES_SQUARED = 0.86, -0.65  # sum over k chosen experts of their shares squared is about 0.86 k^-0.65: measured
CONSTANT = 0  # the coordinate of the hidden state that is 1 throughout
EMBEDDING = "model.embed_tokens.weight"
FINAL_NORM = "model.norm.weight"
ROUTER_BIAS_SPREAD = 1.4
ROUTER_SPREAD = 1.7
ROUTER_TAPER = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomTensors:
    """Random tensors of a shape with RMSNorm and SwiGLU, dense or with experts."""

    shape: DecoderShape
    seed: int = 0

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Each tensor's dimensions by name, in the order in which they are written."""
        return dict(self._names())

    def make(self, name: str, dims: tuple[int, ...]) -> Floats:
        """Returns the values of the tensor of that name, equal for a seed whichever tensors were made before."""
        kind = name.split(".")[-2]
        if name == FINAL_NORM:
            return np.resize(np.array([1.0, -1.0], np.float32), dims)
        if kind.endswith("norm"):
            return np.full(dims, SHARPNESS if kind in ("q_norm", "k_norm") else 1.0, np.float32)
        random = np.random.default_rng((self.seed, zlib.crc32(name.encode())))
        if kind == "gate":
            return self._router(random, dims, layer=int(name.split(".")[2]))
        values = random.standard_normal(dims, np.float32)
        if name == EMBEDDING:
            values[:, CONSTANT] = 1
            return values
        values *= np.float32(self._gain(kind) / math.sqrt(dims[-1]))
        if kind in ("o_proj", "down_proj"):
            values[CONSTANT] = 0
        return values

    def _gain(self, kind: str) -> float:
        """Returns the gain of a projection whose input has a mean square of 1; 1 for most."""
        if kind == "o_proj":
            return math.sqrt(ATTENTION_GROWTH / self.shape.num_layers)
        if kind == "down_proj":
            factor, power = SHARES_SQUARED
            shares = 1.0 if self.shape.is_dense else factor * self.shape.experts_per_token**power
            return math.sqrt(FEED_FORWARD_GROWTH / self.shape.num_layers / SWIGLU_MEAN_SQUARE / shares)
        return SHARPNESS if kind in ("q_proj", "k_proj") and not self.shape.qk_norm else 1.0

    def _router(self, random: np.random.Generator, dims: tuple[int, ...], layer: int) -> Floats:
        experts, hidden = dims
        unit = random.standard_normal(experts, np.float32)
        spread = (ROUTER_SPREAD / math.sqrt(hidden) * np.exp(-ROUTER_TAPER * unit)).astype(np.float32)
        values: Floats = random.standard_normal(dims, np.float32) * spread[:, None]
        root_mean_square = math.sqrt(1 + GROWTH * layer / self.shape.num_layers)
        values[:, CONSTANT] = np.float32(ROUTER_BIAS_SPREAD * root_mean_square) * unit
        return values

    def _names(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        shape = self.shape
        yield EMBEDDING, (shape.vocab_size, shape.hidden)
        for layer in range(shape.num_layers):
            yield from self._names_of_layer(f"model.layers.{layer}.")
        yield FINAL_NORM, (shape.hidden,)
        if not shape.tied_embeddings:
            yield "lm_head.weight", (shape.vocab_size, shape.hidden)

    def _names_of_layer(self, prefix: str) -> Iterator[tuple[str, tuple[int, ...]]]:
        shape, attention = self.shape, prefix + "self_attn."
        query, key = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
        yield prefix + "input_layernorm.weight", (shape.hidden,)
        for name, rows in (("q", query), ("k", key), ("v", key)):
            yield f"{attention}{name}_proj.weight", (rows, shape.hidden)
        yield attention + "o_proj.weight", (shape.hidden, query)
        if self.shape.qk_norm:
            yield attention + "q_norm.weight", (shape.head_dim,)
            yield attention + "k_norm.weight", (shape.head_dim,)
        yield prefix + "post_attention_layernorm.weight", (shape.hidden,)
        yield from self._names_of_feed_forward(prefix + "mlp.")

    def _names_of_feed_forward(self, mlp: str) -> Iterator[tuple[str, tuple[int, ...]]]:
        shape = self.shape
        hidden, width = shape.hidden, shape.intermediate
        if not shape.is_dense:
            yield mlp + "gate.weight", (shape.num_experts, hidden)
        blocks = ("",) if shape.is_dense else tuple(f"experts.{expert}." for expert in range(shape.num_experts))
        for block in blocks:
            yield f"{mlp}{block}gate_proj.weight", (width, hidden)
            yield f"{mlp}{block}up_proj.weight", (width, hidden)
            yield f"{mlp}{block}down_proj.weight", (hidden, width)
