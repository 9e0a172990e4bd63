"""What the probe prompts' answers are in float64, and how far rounding alone may take an engine from them.

The decoder is written for matrices of numpy on the host, layer by layer, one layer's weights in memory at a time, made
once for all texts. It runs each text once: the answers to all prompts are those at positions of the texts.

The rounding model runs the same decoder with every result times 1 + d, |d| <= u: u is the dtype's 2^-24 (fp32), 2^-11
(fp16) or 2^-8 (bf16), and of a sum of K products at least 2^-24 sqrt(K), as sums are taken in float32. Rotary
angles are those of float32 in every dtype: one of 1000 radians is off by 3e-5. `rounding` is the root mean square of
the distances from the exact answers over positions, `largest` the largest.

A run takes two operations a token for each active parameter and product of attention, and a hundred a weight. The
longest prompts have no reference where MAX_OPERATIONS, about a minute of two cores, do not last for them, or behind
MAX_TOKENS: they are tied to the others by the pairs that must agree. A model so wide that not even the shortest prompt
is affordable has none. A dtype that is no key of ROUNDING, such as int8, has none either: how a vendor quantises is not
modelled, and its results count as rounded to COARSEST.

Worked number: llama-3.2-1b has 0.97e9 weights in its layers, 1.9 GFLOP a token.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pytest_npubench.core.regular_file import replacing
from pytest_npubench.engines.answers import Logits, distances, root_mean_square
from pytest_npubench.engines.probe import (
    NUM_FIXED,
    RECIPE,
    HostWeights,
    ProbePrompts,
    ProbeWeights,
    fixed_tokens,
)
from pytest_npubench.engines.rope import rope_frequencies, rope_growth
from pytest_npubench.engines.shapes import SWIGLU_ALPHA, SWIGLU_LIMIT, DecoderShape

MAX_OPERATIONS = 1e12
MAX_TOKENS = 1040  # of a text: attention in float64 takes the square of it
ROUNDING = {"fp32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8}
COARSEST = "bf16"
SUM_ROUNDING = 2.0**-24
WEIGHT_OPERATIONS = 100  # making a weight and widening it takes as long as so many operations with it
MAX_TABLE = 3e8  # entries of the vocabulary's table: a few seconds
QUERY_BLOCK = 256
TABLE_BLOCK = 4096
OF_EXPERTS = ("w_gate", "w_up", "w_down", "b_gate", "b_up", "b_down")
LAYERS_OF_ERROR = 15.0  # rounding by one layer after the other, over u sqrt(K) of one result: measured on small shapes


class Rounded(Protocol):
    """How results are rounded."""

    def __call__(self, values: Any, num_products: int = 1, *, is_angle: bool = False) -> Any:
        """Returns the values, each a sum of so many products, as a decoder has them."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerReference:
    """logits [prompts, positions, NUM_FIXED] of the shortest prompts, as many as are affordable; what rounding alone
    does to answers: root mean square and largest distance. Without any prompt `rounding` is an estimate.

    `tokens` [prompts, positions] are the greedy tokens, `leads` how far their logits are above the second largest, in
    root mean squares of the fixed tokens' centred logits: 0 where the vocabulary's table is so large that it has no
    reference, and of weights that are not those of probe.py."""

    logits: Logits
    rounding: float
    largest: float
    tokens: npt.NDArray[np.int64]
    leads: Logits

    @property
    def num_prompts(self) -> int:
        return len(self.logits)


def answer_reference(
    shape: DecoderShape,
    dtype: str,
    prompts: ProbePrompts,
    folder: Path | None = None,
    weights: HostWeights | None = None,
) -> AnswerReference:
    """Returns the reference of weights in a dtype, None: of probe weights; kept in a file of `folder`, and read from
    there."""
    if dtype not in ROUNDING:
        return _no_reference(shape, COARSEST, prompts.num_positions)
    weights = weights or ProbeWeights(shape, dtype)
    if folder is None:
        return _computed(shape, dtype, prompts, weights)
    path = folder / f"answers-{shape.name}-{dtype}-{_digest(shape, dtype, prompts, weights)}.npz"
    if path.is_file():
        try:
            with np.load(path) as kept:
                return AnswerReference(
                    logits=kept["logits"],
                    rounding=float(kept["rounding"]),
                    largest=float(kept["largest"]),
                    tokens=kept["tokens"],
                    leads=kept["leads"],
                )
        except (OSError, ValueError, KeyError):  # half a file: made anew
            pass
    made = _computed(shape, dtype, prompts, weights)
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        np.savez(file, **asdict(made))
    return made


def _no_reference(shape: DecoderShape, dtype: str, num_positions: int) -> AnswerReference:
    """Returns an estimate of rounding alone."""
    estimate = _estimated_rounding(shape, dtype)
    empty = np.zeros((0, num_positions, NUM_FIXED))
    return AnswerReference(
        logits=empty,
        rounding=estimate,
        largest=3 * estimate,
        tokens=empty[..., 0].astype(np.int64),
        leads=empty[..., 0],
    )


def affordable_prompts(shape: DecoderShape, prompts: ProbePrompts) -> int:
    """How many of the prompts, shortest first, have a reference within MAX_OPERATIONS."""
    count = 0
    for number in range(1, len(prompts.lengths) + 1):
        lengths = [_text_tokens(prompts, text, number) for text in range(len(prompts.texts))]
        operations = 2 * sum(_operations(shape, length) for length in lengths) + _weight_operations(shape)
        if max(lengths) > MAX_TOKENS or operations > MAX_OPERATIONS:
            break
        count = number
    return count


def _operations(shape: DecoderShape, tokens: int) -> float:
    """Returns the operations of one text: two a weight and token, and causal attention's two products, without the
    head's."""
    active = shape.num_active_parameters - shape.vocab_size * shape.hidden
    attention = shape.num_layers * shape.num_heads * shape.head_dim * tokens
    return 2.0 * tokens * (active + attention)


def _weight_operations(shape: DecoderShape) -> float:
    """What the weights take by themselves, once for all texts."""
    return float(WEIGHT_OPERATIONS * shape.num_layers * shape.parameters_per_layer)


def _text_tokens(prompts: ProbePrompts, text: int, num_prompts: int) -> int:
    """How much of a text the shortest prompts need."""
    return max(
        (prompts.lengths[index] + prompts.num_forced for index in range(text, num_prompts, len(prompts.texts))),
        default=0,
    )


def _computed(shape: DecoderShape, dtype: str, prompts: ProbePrompts, weights: HostWeights) -> AnswerReference:
    number, num_texts = affordable_prompts(shape, prompts), len(prompts.texts)
    if not number:
        return _no_reference(shape, dtype, prompts.num_positions)
    texts = [range(text, number, num_texts) for text in range(min(num_texts, number))]
    exact, near = ([_TextRun(prompts, indices, rounded) for indices in texts] for rounded in (_exact, _rounding(dtype)))
    decoder = _Decoder(shape, weights)
    logits = np.zeros((number, prompts.num_positions, NUM_FIXED))
    apart = np.zeros((number, prompts.num_positions))
    tokens, leads = (
        np.zeros(apart.shape, np.int64),
        np.zeros(apart.shape),
    )  # without a lead nothing is held against them
    with _one_blas_thread():
        answers = decoder.answers([*exact, *near])
        if isinstance(weights, ProbeWeights) and shape.vocab_size * shape.hidden <= MAX_TABLE:
            for indices, greedy in zip(texts, decoder.greedy(exact), strict=True):
                tokens[indices], leads[indices] = greedy
    for indices, right, other in zip(texts, answers, answers[len(texts) :], strict=False):
        logits[indices], apart[indices] = right, distances(other, right)
    return AnswerReference(
        logits=logits,
        rounding=root_mean_square(apart),
        largest=float(apart.max()),
        tokens=tokens,
        leads=leads / logits.std(axis=-1),
    )


def _estimated_rounding(shape: DecoderShape, dtype: str) -> float:
    unit = max(ROUNDING[dtype], SUM_ROUNDING * math.sqrt(shape.hidden)) / math.sqrt(3)
    return LAYERS_OF_ERROR * unit * math.sqrt(shape.num_layers)


def _digest(shape: DecoderShape, dtype: str, prompts: ProbePrompts, weights: HostWeights) -> str:
    texts = [text.tobytes() for text in prompts.texts]
    limits = (weights.recipe, MAX_OPERATIONS, WEIGHT_OPERATIONS, MAX_TOKENS)
    subject = (astuple(shape), dtype, prompts.lengths, prompts.num_forced, prompts.middles, texts, *limits)
    return hashlib.sha256(repr(subject).encode()).hexdigest()[:12]


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    """Threads of numpy's OpenBLAS wait for each other longer than products of this size take: five times the processor
    time on two cores. Another BLAS is left as it is."""
    package = Path(np.__file__).parent
    for path in [*package.with_name("numpy.libs").glob("*openblas*"), *package.glob(".dylibs/*openblas*")]:
        library = ctypes.CDLL(str(path))
        for prefix in ("scipy_openblas", "openblas"):
            number = getattr(library, f"{prefix}_get_num_threads64_", None)
            if number is not None:
                change, before = getattr(library, f"{prefix}_set_num_threads64_"), number()
                change(1)
                try:
                    yield
                finally:
                    change(before)
                return
    yield


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


class _TextRun:
    """A text on its way through the layers. `hidden` is [T, hidden], `asked` the positions [prompts, positions] that
    are answered."""

    def __init__(self, prompts: ProbePrompts, indices: range, rounded: Rounded) -> None:
        self.asked = np.stack([prompts.positions(index) for index in indices])
        self.tokens = prompts.texts[indices.start][: self.asked.max() + 1]
        self.rounded = rounded
        self.hidden: Any = None


class _Decoder:
    """All texts, a layer at a time. Hidden states are [T, hidden], heads [heads, T, head_dim]."""

    def __init__(self, shape: DecoderShape, weights: HostWeights) -> None:
        self._shape, self._weights = shape, weights

    def answers(self, runs: Sequence[_TextRun]) -> list[Logits]:
        """Logits [prompts, positions, NUM_FIXED] of each."""
        shape, weights = self._shape, self._weights
        rows = weights.rows("embedding", np.concatenate([run.tokens for run in runs])).astype(np.float64)
        for run, embedded in zip(runs, np.split(rows, np.cumsum([len(run.tokens) for run in runs])[:-1]), strict=True):
            run.hidden = embedded
        for index in range(shape.num_layers):
            layer = {name: _widened(values) for name, values in weights.layer(index).items()}
            window = shape.sliding_window if index % 2 == 0 else None
            for run in runs:
                is_last = index == shape.num_layers - 1
                wanted = (
                    run.asked.ravel() if is_last else np.arange(len(run.tokens))
                )  # the last layer's others are lost
                run.hidden = self._layer(layer, run.hidden, wanted, window, run.rounded)
        norm = weights.final_norm().astype(np.float64)
        for run in runs:
            run.hidden = _normed(run.hidden, norm, shape.rms_eps, run.rounded)
        rows = self._head(fixed_tokens(shape.vocab_size))
        return [run.rounded(run.hidden @ rows.T, shape.hidden).reshape(*run.asked.shape, NUM_FIXED) for run in runs]

    def greedy(self, runs: Sequence[_TextRun]) -> Iterator[tuple[Any, Any]]:
        """Yields the greedy tokens [prompts, positions] of runs that were answered, and their logits less the second
        largest."""
        hidden = np.concatenate([run.hidden for run in runs])
        largest, second = np.full((2, len(hidden)), -np.inf)
        tokens = np.zeros(len(hidden), np.int64)
        for start in range(0, self._shape.vocab_size, TABLE_BLOCK):
            block = range(start, min(start + TABLE_BLOCK, self._shape.vocab_size))
            logits = hidden @ self._head(np.array(block)).T
            best = logits.argmax(axis=1)
            two = np.partition(np.column_stack([logits, largest, second]), -2, axis=1)[:, -2:]
            tokens = np.where(two[:, 1] > largest, start + best, tokens)
            second, largest = two.T
        ends = np.cumsum([run.asked.size for run in runs])[:-1]
        for run, run_tokens, lead in zip(runs, np.split(tokens, ends), np.split(largest - second, ends), strict=True):
            yield run_tokens.reshape(run.asked.shape), lead.reshape(run.asked.shape)

    def _head(self, tokens: Any) -> Any:
        table = "embedding" if self._shape.tied_embeddings else "head"
        return self._weights.rows(table, tokens).astype(np.float64)

    def _layer(self, layer: Any, hidden: Any, wanted: Any, window: int | None, rounded: Rounded) -> Any:
        """Computes one layer: all positions go in, the wanted positions come out."""
        shape = self._shape
        normed = _normed(hidden, layer["attention_norm"], shape.rms_eps, rounded)
        attended = self._attention(layer, normed, wanted, window, rounded)
        products = rounded(attended @ layer["wo"] + layer.get("bo", 0.0), len(layer["wo"]))
        hidden = rounded(hidden[wanted] + products)
        normed = _normed(hidden, layer["ffn_norm"], shape.rms_eps, rounded)
        feed = self._feed_forward if shape.is_dense else self._experts
        return rounded(hidden + feed(layer, normed, rounded))

    def _attention(self, layer: Any, normed: Any, wanted: Any, window: int | None, rounded: Rounded) -> Any:
        """[len(wanted), H * D]."""
        shape, everywhere = self._shape, np.arange(len(normed))
        keys = self._heads(layer, "k", normed, everywhere, shape.num_kv_heads, rounded)
        queries = self._heads(layer, "q", normed[wanted], wanted, shape.num_heads, rounded)
        values = self._split(layer, "v", normed, shape.num_kv_heads, rounded)
        group = shape.num_heads // shape.num_kv_heads
        mixed = np.empty((len(wanted), shape.num_heads, shape.head_dim))
        sinks = layer.get("sinks", np.full(shape.num_heads, -np.inf))
        for head in range(shape.num_heads):
            for start in range(0, len(wanted), QUERY_BLOCK):
                block = slice(start, start + QUERY_BLOCK)
                end = wanted[block].max() + 1
                keys_and_values = keys[head // group, :end], values[head // group, :end]
                may_look = _may_look(wanted[block], end, window)
                mixed[block, head] = _attend(queries[head, block], *keys_and_values, may_look, sinks[head], rounded)
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
        return rounded(rope_growth(shape) * np.concatenate(turned, axis=-1))

    def _split(self, layer: Any, name: str, normed: Any, num_heads: int, rounded: Rounded) -> Any:
        projected = rounded(normed @ layer[f"w{name}"] + layer.get(f"b{name}", 0.0), normed.shape[-1])
        return projected.reshape(len(normed), num_heads, self._shape.head_dim).swapaxes(0, 1)

    def _experts(self, layer: Any, normed: Any, rounded: Rounded) -> Any:
        """Returns the chosen experts' outputs, weighed by the softmax over the chosen logits."""
        scores = rounded(normed @ layer["router"] + layer.get("router_bias", 0.0), normed.shape[-1])
        chosen = np.argsort(-scores, axis=-1, kind="stable")[:, : self._shape.experts_per_token]
        shares = rounded(_softmax(np.take_along_axis(scores, chosen, axis=-1)))
        mixed = np.zeros_like(normed)
        for expert in np.unique(chosen):
            tokens, places = np.nonzero(chosen == expert)
            weights = {name: layer[name][expert].astype(np.float64) for name in layer if name in OF_EXPERTS}
            mixed[tokens] += shares[tokens, places, None] * self._feed_forward(weights, normed[tokens], rounded)
        return rounded(mixed, self._shape.experts_per_token)

    def _feed_forward(self, layer: Any, normed: Any, rounded: Rounded) -> Any:
        """SwiGLU; gpt-oss clamps both halves, has another gain in its sigmoid and adds one to the linear half."""
        gate = rounded(normed @ layer["w_gate"] + layer.get("b_gate", 0.0), normed.shape[-1])
        up = rounded(normed @ layer["w_up"] + layer.get("b_up", 0.0), normed.shape[-1])
        gain = 1.0
        if self._shape.architecture == "gpt-oss":
            gate, gain = np.minimum(gate, SWIGLU_LIMIT), SWIGLU_ALPHA
            up = np.clip(up, -SWIGLU_LIMIT, SWIGLU_LIMIT) + 1
        activated = rounded(gate / (1 + np.exp(-gain * gate)) * up)
        return rounded(activated @ layer["w_down"] + layer.get("b_down", 0.0), up.shape[-1])


def _widened(values: Any) -> Any:
    """Returns the values as float64; experts' matrices are widened one by one, so that each stays in the processor's
    cache."""
    return values if values.ndim == 3 else values.astype(np.float64)


def _normed(hidden: Any, weight: Any, eps: float, rounded: Rounded) -> Any:
    return rounded(hidden / np.sqrt(np.mean(hidden * hidden, axis=-1, keepdims=True) + eps) * weight)


def _may_look(positions: Any, num_keys: int, window: int | None) -> Any:
    """[Q, T]: back to the first key, or over a window, oneself counted."""
    back = positions[:, None] - np.arange(num_keys)
    return (back >= 0) & (back < (window or num_keys))


def _attend(queries: Any, keys: Any, values: Any, may_look: Any, sink: float, rounded: Rounded) -> Any:
    """Queries [Q, D] on keys and values [T, D]; the sink is one more score, which has no value."""
    scores = rounded(queries @ keys.T / math.sqrt(keys.shape[-1]), keys.shape[-1])
    scores = np.concatenate([np.where(may_look, scores, -np.inf), np.full((len(queries), 1), sink)], axis=-1)
    return rounded(rounded(_softmax(scores)[:, :-1]) @ values, len(keys))


def _softmax(scores: Any) -> Any:
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)
