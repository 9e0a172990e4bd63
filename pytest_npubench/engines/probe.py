"""Weights and prompts by which an engine's answers are checked: the same bits on every machine, in every version.

A decoder of tied random embeddings repeats its last token for ever, whatever is broken inside. Probe weights answer by
the whole context: an embedding of spread 1/sqrt(hidden), so that layers and not the token fill the hidden state; norms
of 1 +- 0.2, so that a lost one shows; and one matrix entry in 64 eight times as large, as trained models have them, so
that 8 bits show. Queries and keys are no sharper than that: twice as large each, they let rounding in bf16 move the
answers of 8 layers 8 times as far (0.153 against 0.018 with small-dense, where a mask off by one moves them 0.39).

numpy's PCG64 gives 16 bits an entry, and a table makes them a normal quantile. A tensor of more than BLOCK entries
repeats its first BLOCK: a prime, so no two rows begin at the same place of it.

Two texts serve all prompts: prompt i is the head of text i % 2, and the tokens behind it are what it is forced to go on
with. So the reference decoder runs two texts and not eight, and neighbours in a batch never share their text.

Worked number: with the heavy entries a matrix has mean square (63 + 64) / 64 = 1.984; the table is divided by its root.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from statistics import NormalDist
from typing import Any, NamedTuple, Protocol
from zlib import crc32

import numpy as np
import numpy.typing as npt

from pytest_npubench.core.buckets import bucket_of
from pytest_npubench.engines.request_batch import Prompt
from pytest_npubench.engines.shapes import DecoderShape

RECIPE = 2
"""Raised with every change of weights or prompts: answers of different recipes are not compared."""
BLOCK = 2**20 - 3
LEVELS = 2**16
HEAVY_EVERY, HEAVY = 64, 8.0
NORM_SPREAD = 0.2
BIAS_SPREAD = 0.5
NUM_FIXED = 16
NUM_PROMPTS = 8
NUM_TEXTS = 2
NUM_FORCED = 12
NUM_MIDDLE = 3
EDGE = 8  # tokens before a bucket's edge: some steps run in the bucket, the rest behind the move

Floats = npt.NDArray[np.float32]
Place = Callable[[tuple[str | int, ...], Floats], Any]
"""Puts one tensor where an engine keeps it: its path in the tree, and its float32 values."""


class Asked(NamedTuple):
    """What a request is: its prompt, and the tokens that it is forced to go on with."""

    prompt: Prompt
    forced: Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbePrompts:
    """Prompt i is the first lengths[i] tokens of text i modulo the number of texts, and goes on with that text's next
    num_forced tokens. `junk` is a token that no text has: what pads may hold without changing an answer. `middles` are
    places inside of each prompt [prompts, NUM_MIDDLE], whose tokens are run as steps once more behind its prefill;
    empty where an engine has no such steps."""

    texts: tuple[Prompt, ...]
    lengths: tuple[int, ...]
    num_forced: int
    junk: int
    middles: tuple[tuple[int, ...], ...] = ()

    @property
    def num_positions(self) -> int:
        """Returns the number of logits of a prompt: at its prefill's end, for each forced token, for each middle."""
        return self.num_forced + 1 + (len(self.middles[0]) if self.middles else 0)

    def positions(self, index: int) -> npt.NDArray[np.int64]:
        """Returns the positions of a prompt's answers in its text [num_positions]."""
        steps = self.lengths[index] - 1 + np.arange(self.num_forced + 1)
        return np.concatenate([steps, self.middles[index]]).astype(np.int64) if self.middles else steps

    def prompt(self, index: int) -> Prompt:
        return self.texts[index % len(self.texts)][: self.lengths[index]]

    def forced(self, index: int) -> Prompt:
        length = self.lengths[index]
        return self.texts[index % len(self.texts)][length : length + self.num_forced]

    def asked(self) -> list[Asked]:
        """All prompts, each with the tokens that follow it."""
        return [Asked(self.prompt(index), self.forced(index)) for index in range(len(self.lengths))]

    def changed(self) -> dict[str, list[Asked]]:
        """All prompts with other tokens in one half or in the other, but for the last token, by what was changed. An
        engine that sees the whole of a prompt answers otherwise."""
        changed: dict[str, list[Asked]] = {"first half": [], "second half": []}
        for prompt, forced in self.asked():
            middle = len(prompt) // 2
            for half, part in zip(changed, (slice(0, middle), slice(middle, -1)), strict=True):
                other: Prompt = prompt.copy()
                other[part] = (other[part] + 1) % self.junk
                changed[half].append(Asked(other, forced[:0]))
        return changed

    def with_one_token(self) -> ProbePrompts:
        """Follows each of the prompts by one token again and again, for engines that can be forced no other way. Each
        prompt has its own text."""
        texts = tuple(
            np.concatenate([prompt, np.full_like(forced, forced[0])]).astype(np.int32)
            for prompt, forced in self.asked()
        )
        return replace(self, texts=texts, middles=())


class HostWeights(Protocol):
    """An engine's weights as the host makes them: by probe.py's names, matrices [in, out], in float32 that the engine's
    dtype holds exactly."""

    recipe: str
    """Weights of one shape, dtype and recipe are the same."""

    def layer(self, index: int) -> Mapping[str, Floats]:
        """Returns the tensors of one layer by name."""
        ...

    def rows(self, table: str, rows: npt.ArrayLike) -> Floats:
        """Rows of the embedding or the head alone: [len(rows), hidden]."""
        ...

    def final_norm(self) -> Floats: ...


class ProbeWeights:
    """The weights of this module."""

    recipe = f"probe {RECIPE}"

    def __init__(self, shape: DecoderShape, dtype: str) -> None:
        self._shape, self._dtype = shape, dtype

    def layer(self, index: int) -> Mapping[str, Floats]:
        return probe_layer(self._shape, index, self._dtype)

    def rows(self, table: str, rows: npt.ArrayLike) -> Floats:
        return probe_rows(self._shape, table, rows, self._dtype)

    def final_norm(self) -> Floats:
        return probe_final_norm(self._shape, self._dtype)


def probe_prompts(vocab_size: int, buckets: Sequence[int]) -> ProbePrompts:
    """Prompts of lengths around the edges of these buckets, at most NUM_PROMPTS, shortest first.

    Worked example: buckets 128 and 256 give lengths 5, 120, 128, 129 and 244.
    """
    largest = buckets[-1]
    num_forced = min(NUM_FORCED, largest // 2)
    before = [bucket - EDGE if bucket > 2 * EDGE else bucket // 2 for bucket in buckets[:-1]]
    behind = [bucket + 1 for bucket in buckets[:-1]]
    wanted = dict.fromkeys((*before, largest - num_forced, 5, *behind, *buckets))
    lengths = [length for length in wanted if 1 <= length <= largest - num_forced][:NUM_PROMPTS]
    texts = tuple(
        (_words(f"text{index}", largest) % np.uint64(vocab_size - 1)).astype(np.int32) for index in range(NUM_TEXTS)
    )
    lengths.sort()
    return ProbePrompts(
        texts=texts,
        lengths=tuple(lengths),
        num_forced=num_forced,
        junk=vocab_size - 1,
        middles=tuple(_middles(length, buckets) for length in lengths),
    )


def _middles(length: int, buckets: Sequence[int]) -> tuple[int, ...]:
    """Evenly spread over the part of a prompt's bucket that no smaller bucket has; over the whole prompt where it ends
    in that part's first half. Kernels cut a context into tiles: every other one is the last place of a tile.

    Worked example: 248 tokens in bucket 256, behind 128, have steps at 160, 191 and 224.
    """
    larger = bucket_of(buckets, length + 1)
    smaller = max((bucket for bucket in buckets if bucket < larger), default=0)
    start, end = (smaller, larger) if 2 * length > smaller + larger else (0, length)
    part = range(1, NUM_MIDDLE + 1)
    return tuple(min(start + (end - start) * index // (NUM_MIDDLE + 1) - (index + 1) % 2, length - 1) for index in part)


def fixed_tokens(vocab_size: int) -> tuple[int, ...]:
    """Returns the NUM_FIXED vocabulary entries whose logits are told: evenly spread, so that no shard is left out."""
    return tuple(index * vocab_size // NUM_FIXED for index in range(NUM_FIXED))


def probe_weights(shape: DecoderShape, dtype: str, put: Place = lambda path, values: values) -> Any:
    """Returns the tree of all weights, one tensor at a time: {"embedding", "final_norm", "layers": [{...}], "head"}.

    `put` takes each tensor's path and its values, float32 that `dtype` (fp32, bf16, fp16) holds exactly, and returns
    what the tree shall hold. Matrices are [in, out], experts' [experts, in, out], embedding and head [vocab, hidden].
    """
    tables = ("embedding",) if shape.tied_embeddings else ("embedding", "head")
    tree: dict[str, Any] = {name: put((name,), probe_table(shape, name, dtype)) for name in tables}
    tree["final_norm"] = put(("final_norm",), probe_final_norm(shape, dtype))
    tree["layers"] = [
        {name: put(("layers", index, name), values()) for name, values in _layer(shape, index, dtype).items()}
        for index in range(shape.num_layers)
    ]
    return tree


def probe_layer(shape: DecoderShape, index: int, dtype: str) -> dict[str, Floats]:
    """Returns the tensors of one layer by name."""
    return {name: values() for name, values in _layer(shape, index, dtype).items()}


def probe_rows(shape: DecoderShape, table: str, rows: npt.ArrayLike, dtype: str) -> Floats:
    """Rows of the embedding or the head alone: [len(rows), hidden]."""
    columns = np.arange(shape.hidden, dtype=np.int64)
    places = np.asarray(rows, np.int64)[:, None] * shape.hidden + columns
    size = min(BLOCK, shape.vocab_size * shape.hidden)
    entries: Floats = _entries(table, size, 1 / math.sqrt(shape.hidden), dtype)[places % size]
    return entries


def probe_table(shape: DecoderShape, table: str, dtype: str) -> Floats:
    """Returns the embedding, or the head where it is not tied to it: [vocab, hidden]."""
    return _matrix(table, (shape.vocab_size, shape.hidden), 1 / math.sqrt(shape.hidden), dtype)


def probe_final_norm(shape: DecoderShape, dtype: str) -> Floats:
    return _norm("final_norm", shape.hidden, dtype)


def weights_bits(arrays: Iterable[npt.NDArray[Any]]) -> int:
    """Returns a checksum of the bits of all weights, each of two or four bytes: their sum as whole numbers, modulo
    2^32. No order and no split over devices changes it."""
    total = 0
    for array in arrays:
        whole = np.uint16 if array.dtype.itemsize == 2 else np.uint32
        total += int(np.ascontiguousarray(array).view(whole).sum(dtype=np.uint64))
    return total % 2**32


def rounded(values: Floats, dtype: str) -> Floats:
    """Returns the nearest numbers that the dtype has, as float32."""
    if dtype == "fp16":
        return values.astype(np.float16).astype(np.float32)
    if dtype != "bf16":
        return values
    bits = values.view(np.uint32)
    even: Floats = ((bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)).view(np.float32)
    return even


def _layer(shape: DecoderShape, index: int, dtype: str) -> dict[str, Callable[[], Floats]]:
    """Functions that make each tensor of a layer, those of gpt-oss included."""
    hidden, width, experts = shape.hidden, shape.intermediate, shape.num_experts
    query, key = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    is_gpt_oss = shape.architecture == "gpt-oss"
    each = () if shape.is_dense else (experts,)
    norms = {"attention_norm": hidden, "ffn_norm": hidden}
    matrices = {
        "wq": (hidden, query),
        "wk": (hidden, key),
        "wv": (hidden, key),
        "wo": (query, hidden),
        "w_gate": (*each, hidden, width),
        "w_up": (*each, hidden, width),
        "w_down": (*each, width, hidden),
    }
    biases: dict[str, tuple[int, ...]] = {}
    if shape.qk_norm:
        norms |= {"q_norm": shape.head_dim, "k_norm": shape.head_dim}
    if not shape.is_dense:
        matrices["router"] = (hidden, experts)
    if shape.qkv_bias or is_gpt_oss:
        biases |= {"bq": (query,), "bk": (key,), "bv": (key,)}
    if is_gpt_oss:
        biases |= {"bo": (hidden,), "sinks": (shape.num_heads,), "b_gate": (*each, width), "b_up": (*each, width)}
        biases |= {"b_down": (*each, hidden), "router_bias": (experts,)}

    def stream(name: str) -> str:
        return f"layer{index}.{name}"

    return {
        **{name: partial(_norm, stream(name), size, dtype) for name, size in norms.items()},
        **{
            name: partial(_matrix, stream(name), dims, 1 / math.sqrt(dims[-2]), dtype)
            for name, dims in matrices.items()
        },
        **{name: partial(_matrix, stream(name), dims, BIAS_SPREAD, dtype) for name, dims in biases.items()},
    }


def _norm(stream: str, size: int, dtype: str) -> Floats:
    return rounded((1 + NORM_SPREAD * _quantiles()[_raw(stream, size)]).astype(np.float32), dtype)


def _matrix(stream: str, dims: tuple[int, ...], spread: float, dtype: str) -> Floats:
    """Experts' matrices lie in memory as [experts, out, in], which is how engines multiply by them."""
    size = math.prod(dims)
    block = _entries(stream, min(BLOCK, size), spread, dtype)
    entries: Floats = np.empty(size, np.float32)  # numpy's resize takes three times as long
    for start in range(0, size, BLOCK):
        entries[start : start + BLOCK] = block[: size - start]
    if len(dims) < 3:
        return entries.reshape(dims)
    turned: Floats = entries.reshape(dims[0], dims[2], dims[1]).swapaxes(1, 2)
    return turned


def _entries(stream: str, size: int, spread: float, dtype: str) -> Floats:
    table = rounded((spread * _heavy_quantiles()).astype(np.float32), dtype)
    entries: Floats = table[_raw(stream, size)]
    return entries


def _raw(stream: str, size: int) -> npt.NDArray[np.uint16]:
    """16 random bits each [size]."""
    return _words(stream, -(-size // 4)).astype("<u8").view("<u2")[:size]


def _words(stream: str, size: int) -> npt.NDArray[np.uint64]:
    """64 random bits each [size], of a stream by its name."""
    return np.random.PCG64((RECIPE, crc32(stream.encode()))).random_raw(size)


@cache
def _quantiles() -> npt.NDArray[np.float64]:
    """Returns the quantiles of the normal distribution at the middles of LEVELS equal parts."""
    inverse = NormalDist().inv_cdf
    lower = np.array([inverse((level + 0.5) / LEVELS) for level in range(LEVELS // 2)])
    return np.concatenate([lower, -lower[::-1]])


@cache
def _heavy_quantiles() -> npt.NDArray[np.float64]:
    scale = np.where(np.arange(LEVELS) % HEAVY_EVERY == 0, HEAVY, 1.0)
    values = _quantiles() * scale
    spread_one: npt.NDArray[np.float64] = values / np.sqrt(np.mean(values**2))
    return spread_one
