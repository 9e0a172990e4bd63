"""The oracle: a decoder in plain numpy float64, without buckets, padding, cache or batch.

Every token runs the whole sequence again, one head and one frequency at a time. Nothing is shared with the engine but
its weights. RoPE is written as a rotation of complex numbers (arXiv 2104.09864, Eq. 13 and 34, with the two halves of
a head as real and imaginary parts), Llama 3's scaling by the three cases of its reference code (`apply_scaling`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from pytest_npubench.engines.shapes import DecoderShape

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Greedy tokens, the logits each was chosen from [count, vocab], and the smallest gap of the best two logits."""

    tokens: tuple[int, ...]
    logits: Array
    margin: float


def exact(weights: Any) -> Any:
    """The engine's weights as float64 arrays on the host."""
    return jax.tree.map(lambda array: np.asarray(array, np.float64), weights)


def generate(shape: DecoderShape, weights: Any, prompt: npt.NDArray[np.int32], count: int) -> Answer:
    """`count` greedy tokens after the prompt; weights from exact()."""
    sequence = [int(token) for token in prompt]
    rows = []
    for _ in range(count):
        rows.append(last_logits(shape, weights, sequence))
        sequence.append(int(np.argmax(rows[-1])))
    logits = np.stack(rows)
    best, second = np.sort(logits, axis=1)[:, -1], np.sort(logits, axis=1)[:, -2]
    return Answer(tokens=tuple(sequence[len(prompt) :]), logits=logits, margin=float(np.min(best - second)))


def last_logits(shape: DecoderShape, weights: Any, sequence: list[int]) -> Array:
    """Logits [vocab] of the token that follows the sequence."""
    x = weights["embedding"][sequence]
    for layer in weights["layers"]:
        x = x + attention(shape, layer, rms_norm(x, layer["attention_norm"], shape.rms_eps))
        normed = rms_norm(x, layer["ffn_norm"], shape.rms_eps)
        gate = normed @ layer["w_gate"]
        x = x + (gate / (1 + np.exp(-gate)) * (normed @ layer["w_up"])) @ layer["w_down"]
    table = weights["embedding"] if shape.tied_embeddings else weights["head"]
    logits: Array = table @ rms_norm(x[-1], weights["final_norm"], shape.rms_eps)
    return logits


def attention(shape: DecoderShape, layer: Any, x: Array) -> Array:
    """Causal attention of [length, hidden], a head at a time: query head h reads key-value head h // (H / K)."""
    width, shared = shape.head_dim, shape.num_heads // shape.num_kv_heads
    hidden = np.triu(np.ones((len(x), len(x)), bool), k=1)
    heads = []
    for head in range(shape.num_heads):
        own, kv = (slice(index * width, (index + 1) * width) for index in (head, head // shared))
        q, k, v = x @ layer["wq"][:, own], x @ layer["wk"][:, kv], x @ layer["wv"][:, kv]
        if shape.qk_norm:
            q, k = rms_norm(q, layer["q_norm"], shape.rms_eps), rms_norm(k, layer["k_norm"], shape.rms_eps)
        scores = rotate(q, shape) @ rotate(k, shape).T / math.sqrt(width)
        scores[hidden] = -np.inf
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        heads.append(powers / powers.sum(axis=1, keepdims=True) @ v)
    joined: Array = np.concatenate(heads, axis=1) @ layer["wo"]
    return joined


def rotate(x: Array, shape: DecoderShape) -> Array:
    """Turn pair (i, i + D/2) of position p by p * frequency_i. x [length, D], its rows at positions 0, 1, ..."""
    half = shape.head_dim // 2
    turns = np.outer(np.arange(len(x)), [frequency(shape, pair) for pair in range(half)])
    turned = (x[:, :half] + 1j * x[:, half:]) * np.exp(1j * turns)
    return np.concatenate([turned.real, turned.imag], axis=1)


def frequency(shape: DecoderShape, pair: int) -> float:
    """Radians a position for one pair, stretched by the three cases of Llama 3 where the shape asks for it."""
    plain = 1.0 / math.pow(shape.rope_theta, 2 * pair / shape.head_dim)
    scaling = shape.rope_scaling
    if scaling is None:
        return plain
    wavelength = 2 * math.pi / plain
    if wavelength < scaling.original_context / scaling.high_freq_factor:
        return plain
    if wavelength > scaling.original_context / scaling.low_freq_factor:
        return plain / scaling.factor
    smooth = scaling.original_context / wavelength - scaling.low_freq_factor
    smooth /= scaling.high_freq_factor - scaling.low_freq_factor
    return (1 - smooth) * plain / scaling.factor + smooth * plain


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    normed: Array = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight
    return normed
