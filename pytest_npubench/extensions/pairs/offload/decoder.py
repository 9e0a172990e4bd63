"""A small decoder whose prefill is cut into chunks: its sizes, its weights, and its output in float32 as the reference.

Pre-norm layers of multi-head attention and a two-matrix feed-forward with SiLU, no positions:

    h += attention(norm(h) w_qkv) w_out;  h += silu(norm(h) w_up) w_down

The gains of a few channels of each norm are large, so that what enters w_qkv and w_up has outlier channels, as it does
in trained decoders (LLM.int8(), arXiv 2208.07339). Everything follows from the seed, in whatever process it is made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pytest_npubench.engines.quantization import Floats
from pytest_npubench.errors import ConfigError

NORM_EPSILON = 1e-5
WEIGHTS = ("w_qkv", "w_out", "w_up", "w_down")
STAGES = ("norm", "qkv", "attention", "out", "ffn_norm", "ffn")
"""Six subgraphs a layer; attention alone depends on how many keys there are."""
DYNAMIC_STAGES = ("attention",)
Layer = Mapping[str, Floats]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderSize:
    """Raises ConfigError for counts below 1, heads that do not divide the width, too many outliers."""

    num_layers: int = 2
    width: int = 128
    num_heads: int = 4
    ffn_width: int = 512
    num_outliers: int = 4
    outlier_gain: float = 40.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("num_layers", "width", "num_heads", "ffn_width"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; want at least 1")
        if self.width % self.num_heads:
            raise ConfigError(f"{self.num_heads} heads do not divide a width of {self.width}")
        if not 0 <= self.num_outliers <= self.width:
            raise ConfigError(f"{self.num_outliers} outlier channels of {self.width}; want none to all")

    def weight_shapes(self) -> Mapping[str, tuple[int, int]]:
        """[inputs, outputs] of each matrix of a layer."""
        return {
            "w_qkv": (self.width, 3 * self.width),
            "w_out": (self.width, self.width),
            "w_up": (self.width, self.ffn_width),
            "w_down": (self.ffn_width, self.width),
        }


def make_layers(size: DecoderSize) -> tuple[Layer, ...]:
    """Returns the weights, layer by layer: matrices [inputs, outputs] of variance 1 / inputs, and gains [width]."""
    return tuple(_layer(size, index) for index in range(size.num_layers))


def _layer(size: DecoderSize, index: int) -> Layer:
    chance = np.random.default_rng((size.seed, index))
    layer = {
        name: (chance.standard_normal(shape) / math.sqrt(shape[0])).astype(np.float32)
        for name, shape in size.weight_shapes().items()
    }
    hot = chance.permutation(size.width)[: size.num_outliers]
    for name in ("gain", "ffn_gain"):
        layer[name] = np.ones(size.width, dtype=np.float32)
        layer[name][hot] = size.outlier_gain
    return layer


def make_prompt(size: DecoderSize, num_tokens: int, *, batch: int = 0) -> Floats:
    """Hidden states [tokens, width]. Raises ConfigError below one token."""
    if num_tokens < 1:
        raise ConfigError(f"num_tokens is {num_tokens}; want at least 1")
    chance = np.random.default_rng((size.seed, 1000, batch))
    return chance.standard_normal((num_tokens, size.width), dtype=np.float32)


def reference(size: DecoderSize, hidden: Floats) -> Floats:
    """Returns the whole prompt at once, summed in float64 and returned in float32 [tokens, width]."""
    return trace(size, hidden)[0]


def trace(size: DecoderSize, hidden: Floats) -> tuple[Floats, tuple[Mapping[str, Floats], ...]]:
    """Returns the output, and what enters each matrix of each layer, by its name [tokens, inputs]."""
    wide = hidden.astype(np.float64)
    entered = []
    for layer in make_layers(size):
        inputs = {"w_qkv": norm(wide, layer["gain"])}
        queries, keys, values = np.split(inputs["w_qkv"] @ layer["w_qkv"], 3, axis=1)
        inputs["w_out"] = attention(queries, keys, values, size.num_heads)
        wide = wide + inputs["w_out"] @ layer["w_out"]
        inputs["w_up"] = norm(wide, layer["ffn_gain"])
        inner = inputs["w_up"] @ layer["w_up"]
        inputs["w_down"] = inner / (1.0 + np.exp(-inner))
        wide = wide + inputs["w_down"] @ layer["w_down"]
        entered.append({name: values.astype(np.float32) for name, values in inputs.items()})
    return wide.astype(np.float32), tuple(entered)


def norm(hidden: NDArray[np.floating], gain: Floats) -> NDArray[np.floating]:
    """RMSNorm over the channels."""
    return np.asarray(hidden / np.sqrt((hidden * hidden).mean(axis=1, keepdims=True) + NORM_EPSILON) * gain)


def attention(
    queries: NDArray[np.floating], keys: NDArray[np.floating], values: NDArray[np.floating], num_heads: int
) -> NDArray[np.floating]:
    """Causal; queries [S, width] are the last S of the positions of keys and values [T, width]."""
    length, total = len(queries), len(keys)
    q, k, v = (part.reshape(len(part), num_heads, -1).swapaxes(0, 1) for part in (queries, keys, values))
    scores = q @ k.swapaxes(1, 2) / math.sqrt(q.shape[2])
    hidden_from_view = np.arange(total)[None, :] > np.arange(total - length, total)[:, None]
    scores = np.where(hidden_from_view, -np.inf, scores)
    shares = np.exp(scores - scores.max(axis=2, keepdims=True))
    shares /= shares.sum(axis=2, keepdims=True)
    return np.asarray((shares @ v).swapaxes(0, 1).reshape(length, -1))
