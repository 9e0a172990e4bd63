"""What the probe prompts' answers are in float64, and how far rounding alone may take an engine from them.

The decoder is written for matrices of numpy on the host, layer by layer, one layer's weights in memory at a time. It
runs each text once: the answers to all prompts are those at positions of the two texts.

The rounding model runs the same decoder with every result times 1 + d, |d| <= u: u is the dtype's 2^-24 (fp32), 2^-11
(fp16) or 2^-8 (bf16), and of a sum of K products at least 2^-24 sqrt(K), as sums are taken in float32. Rotary
angles are those of float32 in every dtype: one of 1000 radians is off by 3e-5. `rounding` is the root mean square of
the distances from the exact answers over positions, `largest` the largest.

A run takes two operations a token for each active parameter and product of attention, and a hundred a weight. The
longest prompts have no reference where MAX_OPERATIONS, about a minute of two cores, do not last for them, or behind
MAX_TOKENS: they are tied to the others by the pairs that must agree. A model so wide that not even the shortest prompt
is affordable has none.

Worked number: llama-3.2-1b has 0.97e9 weights in its layers, 1.9 GFLOP a token.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import astuple, dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Protocol

import numpy as np

from pytest_npubench.engines.answers import Logits, distances, root_mean_square
from pytest_npubench.engines.probe import (
    NUM_FIXED,
    NUM_TEXTS,
    RECIPE,
    ProbePrompts,
    fixed_tokens,
    probe_final_norm,
    probe_layer,
    probe_rows,
)
from pytest_npubench.engines.rope import rope_frequencies
from pytest_npubench.engines.shapes import DecoderShape

MAX_OPERATIONS = 1e12
MAX_TOKENS = 1040  # of a text: attention in float64 takes the square of it
ROUNDING = {"fp32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8}
SUM_ROUNDING = 2.0**-24
WEIGHT_OPERATIONS = 100  # making a weight and widening it takes as long as so many operations with it
QUERY_BLOCK = 256
LAYERS_OF_ERROR = 15.0  # rounding by one layer after the other, over u sqrt(K) of one result: measured on small shapes


class Rounded(Protocol):
    """How results are rounded."""

    def __call__(self, values: Any, num_products: int = 1, *, is_angle: bool = False) -> Any:
        """The values, each a sum of so many products, as a decoder has them."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerReference:
    """logits [prompts, positions, NUM_FIXED] of the shortest prompts, as many as are affordable; what rounding alone
    does to answers: root mean square and largest distance. Without any prompt `rounding` is an estimate."""

    logits: Logits
    rounding: float
    largest: float

    @property
    def num_prompts(self) -> int:
        return len(self.logits)


def answer_reference(
    shape: DecoderShape, dtype: str, prompts: ProbePrompts, folder: Path | None = None
) -> AnswerReference:
    """The reference of probe weights rounded to a dtype; kept in a file of `folder`, and read from there."""
    if folder is None:
        return _computed(shape, dtype, prompts)
    path = folder / f"answers-{shape.name}-{dtype}-{_digest(shape, dtype, prompts)}.npz"
    if path.is_file():
        try:
            with np.load(path) as kept:
                return AnswerReference(
                    logits=kept["logits"], rounding=float(kept["rounding"]), largest=float(kept["largest"])
                )
        except (OSError, ValueError, KeyError):  # half a file: made anew
            pass
    made = _computed(shape, dtype, prompts)
    folder.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile(dir=folder, suffix=".npz", delete=False) as file:
        np.savez(file, logits=made.logits, rounding=made.rounding, largest=made.largest)
    Path(file.name).replace(path)
    return made


def no_reference(shape: DecoderShape, dtype: str, num_positions: int) -> AnswerReference:
    """An estimate of rounding alone."""
    estimate = _estimated_rounding(shape, dtype)
    empty = np.zeros((0, num_positions, NUM_FIXED))
    return AnswerReference(logits=empty, rounding=estimate, largest=3 * estimate)


def affordable_prompts(shape: DecoderShape, prompts: ProbePrompts) -> int:
    """How many of the prompts, shortest first, have a reference within MAX_OPERATIONS. gpt-oss has none."""
    if shape.architecture != "llama":
        return 0
    count = 0
    for number in range(1, len(prompts.lengths) + 1):
        lengths = [_text_tokens(prompts, text, number) for text in range(NUM_TEXTS)]
        if max(lengths) > MAX_TOKENS or 2 * sum(_operations(shape, length) for length in lengths) > MAX_OPERATIONS:
            break
        count = number
    return count


def _operations(shape: DecoderShape, tokens: int) -> float:
    """Of one text: two a weight and token, causal attention's two products, and what the weights take by themselves;
    the head's few rows are nothing."""
    if not tokens:
        return 0.0
    active = shape.num_active_parameters - shape.vocab_size * shape.hidden
    attention = shape.num_layers * shape.num_heads * shape.head_dim * tokens
    return 2.0 * tokens * (active + attention) + WEIGHT_OPERATIONS * shape.num_layers * shape.parameters_per_layer


def _text_tokens(prompts: ProbePrompts, text: int, num_prompts: int) -> int:
    """How much of a text the shortest prompts need."""
    return max(
        (prompts.lengths[index] + prompts.num_forced for index in range(text, num_prompts, NUM_TEXTS)), default=0
    )


def _computed(shape: DecoderShape, dtype: str, prompts: ProbePrompts) -> AnswerReference:
    number = affordable_prompts(shape, prompts)
    if not number:
        return no_reference(shape, dtype, prompts.num_positions)
    decoder = _Decoder(shape, dtype)
    logits = np.zeros((number, prompts.num_positions, NUM_FIXED))
    apart: list[Any] = []
    for text in range(min(NUM_TEXTS, number)):
        own = range(text, number, NUM_TEXTS)
        exact = decoder.answers(prompts, text, own)
        logits[text::NUM_TEXTS] = exact
        apart.extend(distances(decoder.answers(prompts, text, own, _rounding(dtype)), exact).ravel())
    return AnswerReference(logits=logits, rounding=root_mean_square(apart), largest=float(np.max(apart)))


def _estimated_rounding(shape: DecoderShape, dtype: str) -> float:
    unit = max(ROUNDING[dtype], SUM_ROUNDING * math.sqrt(shape.hidden)) / math.sqrt(3)
    return LAYERS_OF_ERROR * unit * math.sqrt(shape.num_layers)


def _digest(shape: DecoderShape, dtype: str, prompts: ProbePrompts) -> str:
    limits = (RECIPE, MAX_OPERATIONS, WEIGHT_OPERATIONS, MAX_TOKENS)
    subject = (astuple(shape), dtype, prompts.lengths, prompts.num_forced, *limits)
    return hashlib.sha256(repr(subject).encode()).hexdigest()[:12]


def _exact(values: Any, num_products: int = 1, *, is_angle: bool = False) -> Any:
    return values


def _rounding(dtype: str) -> Rounded:
    random = np.random.Generator(np.random.PCG64(RECIPE))

    def rounded(values: Any, num_products: int = 1, *, is_angle: bool = False) -> Any:
        if is_angle:
            return values.astype(np.float32).astype(np.float64)
        most = max(ROUNDING[dtype], SUM_ROUNDING * math.sqrt(num_products))
        return values * (1 + random.uniform(-most, most, values.shape))

    return rounded


class _Decoder:
    """T positions of one text. Hidden states are [T, hidden], heads [heads, T, head_dim]."""

    def __init__(self, shape: DecoderShape, dtype: str) -> None:
        self._shape, self._dtype = shape, dtype

    def answers(self, prompts: ProbePrompts, text: int, own: Any, rounded: Rounded = _exact) -> Logits:
        """Logits [len(own), positions, NUM_FIXED] of these prompts of a text."""
        shape = self._shape
        firsts = np.array([prompts.lengths[index] - 1 for index in own])
        asked = firsts[:, None] + np.arange(prompts.num_positions)
        tokens = prompts.texts[text][: asked.max() + 1]
        hidden = np.asarray(probe_rows(shape, "embedding", tokens, self._dtype), np.float64)
        everywhere = np.arange(len(tokens))
        for index in range(shape.num_layers):
            layer = {name: values.astype(np.float64) for name, values in probe_layer(shape, index, self._dtype).items()}
            wanted = asked.ravel() if index == shape.num_layers - 1 else everywhere  # the last layer's others are lost
            hidden = self._layer(layer, hidden, wanted, rounded)
        table = "embedding" if shape.tied_embeddings else "head"
        rows = probe_rows(shape, table, fixed_tokens(shape.vocab_size), self._dtype).astype(np.float64)
        norm = probe_final_norm(shape, self._dtype).astype(np.float64)
        logits: Logits = rounded(_normed(hidden, norm, shape.rms_eps, rounded) @ rows.T, shape.hidden)
        return logits.reshape(*asked.shape, NUM_FIXED)

    def _layer(self, layer: Any, hidden: Any, wanted: Any, rounded: Rounded) -> Any:
        """Of all positions in, of the wanted ones out."""
        shape = self._shape
        normed = _normed(hidden, layer["attention_norm"], shape.rms_eps, rounded)
        attended = self._attention(layer, normed, wanted, rounded)
        products = rounded(attended @ layer["wo"], len(layer["wo"]))
        hidden = rounded(hidden[wanted] + products)
        normed = _normed(hidden, layer["ffn_norm"], shape.rms_eps, rounded)
        feed = _feed_forward if shape.is_dense else self._experts
        return rounded(hidden + feed(layer, normed, rounded))

    def _attention(self, layer: Any, normed: Any, wanted: Any, rounded: Rounded) -> Any:
        """[len(wanted), H * D]."""
        shape, everywhere = self._shape, np.arange(len(normed))
        keys = self._heads(layer, "k", normed, everywhere, shape.num_kv_heads, rounded)
        queries = self._heads(layer, "q", normed[wanted], wanted, shape.num_heads, rounded)
        values = self._split(layer, "v", normed, shape.num_kv_heads, rounded)
        group = shape.num_heads // shape.num_kv_heads
        mixed = np.empty((len(wanted), shape.num_heads, shape.head_dim))
        for head in range(shape.num_heads):
            for start in range(0, len(wanted), QUERY_BLOCK):
                block = slice(start, start + QUERY_BLOCK)
                end = wanted[block].max() + 1
                own = keys[head // group, :end], values[head // group, :end]
                mixed[block, head] = _attend(queries[head, block], *own, wanted[block], rounded)
        return mixed.reshape(len(wanted), -1)

    def _heads(self, layer: Any, name: str, normed: Any, positions: Any, num_heads: int, rounded: Rounded) -> Any:
        """Queries or keys [heads, T, D], normed where the shape has it, and turned."""
        shape = self._shape
        heads = self._split(layer, name, normed, num_heads, rounded)
        if shape.qk_norm:
            heads = _normed(heads, layer[f"{name}_norm"], shape.rms_eps, rounded)
        frequencies = rounded(rope_frequencies(shape), is_angle=True)
        angles = rounded(positions[:, None] * frequencies, is_angle=True)
        low, high = np.split(heads, 2, axis=-1)
        turned = (low * np.cos(angles) - high * np.sin(angles), high * np.cos(angles) + low * np.sin(angles))
        return rounded(np.concatenate(turned, axis=-1))

    def _split(self, layer: Any, name: str, normed: Any, num_heads: int, rounded: Rounded) -> Any:
        projected = rounded(normed @ layer[f"w{name}"], normed.shape[-1]) + layer.get(f"b{name}", 0.0)
        return projected.reshape(len(normed), num_heads, self._shape.head_dim).swapaxes(0, 1)

    def _experts(self, layer: Any, normed: Any, rounded: Rounded) -> Any:
        """The chosen experts' outputs, weighed by the softmax over the chosen logits."""
        scores = rounded(normed @ layer["router"], normed.shape[-1])
        chosen = np.argsort(-scores, axis=-1, kind="stable")[:, : self._shape.experts_per_token]
        shares = rounded(_softmax(np.take_along_axis(scores, chosen, axis=-1)))
        mixed = np.zeros_like(normed)
        for expert in np.unique(chosen):
            tokens, places = np.nonzero(chosen == expert)
            weights = {name: layer[name][expert] for name in ("w_gate", "w_up", "w_down")}
            mixed[tokens] += shares[tokens, places, None] * _feed_forward(weights, normed[tokens], rounded)
        return rounded(mixed, self._shape.experts_per_token)


def _normed(hidden: Any, weight: Any, eps: float, rounded: Rounded) -> Any:
    return rounded(hidden / np.sqrt(np.mean(hidden * hidden, axis=-1, keepdims=True) + eps) * weight)


def _attend(queries: Any, keys: Any, values: Any, positions: Any, rounded: Rounded) -> Any:
    """Queries [Q, D] at these positions, on keys and values [T, D] of positions 0 to T - 1."""
    scores = rounded(queries @ keys.T / math.sqrt(keys.shape[-1]), keys.shape[-1])
    shares = rounded(_softmax(np.where(np.arange(len(keys)) <= positions[:, None], scores, -np.inf)))
    return rounded(shares @ values, len(keys))


def _softmax(scores: Any) -> Any:
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def _feed_forward(layer: Any, normed: Any, rounded: Rounded) -> Any:
    gate = rounded(normed @ layer["w_gate"], normed.shape[-1])
    up = rounded(normed @ layer["w_up"], normed.shape[-1])
    return rounded(rounded(gate / (1 + np.exp(-gate)) * up, 1) @ layer["w_down"], up.shape[-1])
