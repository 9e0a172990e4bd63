"""Graphs of the static unit for the chunk experiment: a small decoder's prefill, cut in four ways.

Imported by the static unit's process alone. Weights are constants of every graph that uses them, as a compiler for an
NPU bakes them in; so the bytes of serialised executables show what is there twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pytest_npubench.core.clock import perf_counter
from pytest_npubench.engines.chunk_layout import ChunkLayout
from pytest_npubench.engines.quantization import Floats
from pytest_npubench.extensions.pairs.offload.decoder import NORM_EPSILON, DecoderSize, Layer, make_layers
from pytest_npubench.extensions.pairs.partition.units.arena import SharedArena

HIGHEST = jax.lax.Precision.HIGHEST
Graph = Callable[..., Any]


def build(spec: Mapping[str, Any], arena: SharedArena) -> Callable[[], None]:
    """spec: arm, size (of DecoderSize), layout (of ChunkLayout), and prompt, output, facts: names in the arena. Facts
    are the number of graphs, the bytes of their weights and of their serialised executables, and the compile seconds.
    """
    size, layout = DecoderSize(**spec["size"]), ChunkLayout(**spec["layout"])
    book = _ChunkBook(make_layers(size), size)
    prefill = ARMS[spec["arm"]](book, layout)
    prompt, output = arena.view(spec["prompt"]), arena.view(spec["output"])
    arena.view(spec["facts"])[:] = book.num_graphs, book.weight_bytes, book.executable_bytes, book.compile_s

    def run() -> None:
        np.copyto(output, prefill(prompt)[: len(output)])

    return run


class _ChunkBook:
    """Compiles graphs and keeps count of them."""

    def __init__(self, layers: Sequence[Layer], size: DecoderSize) -> None:
        self.layers, self.size = layers, size
        self.num_graphs = self.weight_bytes = self.executable_bytes = 0
        self.compile_s = 0.0

    def compile(self, graph: Graph, *shapes: tuple[int, ...], weights: Sequence[Floats]) -> Graph:
        arguments = [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
        began_s = perf_counter()
        compiled = jax.jit(graph).lower(*arguments).compile()
        self.compile_s += perf_counter() - began_s
        self.num_graphs += 1
        self.weight_bytes += sum(weight.nbytes for weight in weights)
        self.executable_bytes += len(compiled.runtime_executable().serialize())
        kernel: Graph = compiled
        return kernel

    def all_weights(self) -> list[Floats]:
        return [weight for layer in self.layers for weight in layer.values()]


def _whole(book: _ChunkBook, layout: ChunkLayout, length: int | None = None) -> Callable[[Floats], Floats]:
    """One graph for the prompt's own length, or for the one it is padded to."""
    length = length or layout.prompt_tokens
    graph = book.compile(_decoder(book), (length, book.size.width), *_past(book, 0), weights=book.all_weights())
    empty = [np.zeros(shape, dtype=np.float32) for shape in _past(book, 0)]
    return lambda prompt: np.asarray(graph(_padded(prompt, length), *empty)[0])


def _padding(book: _ChunkBook, layout: ChunkLayout) -> Callable[[Floats], Floats]:
    return _whole(book, layout, layout.padded_tokens or layout.prompt_tokens)


def _per_chunk(book: _ChunkBook, layout: ChunkLayout) -> Callable[[Floats], Floats]:
    """Chunk i has a graph of its own, for i chunks of keys and values before it."""
    chunk = layout.chunk_tokens
    graphs = [
        book.compile(
            _decoder(book),
            (chunk, book.size.width),
            *_past(book, index * chunk),
            weights=book.all_weights(),
        )
        for index in range(layout.num_chunks)
    ]

    def prefill(prompt: Floats) -> Floats:
        past: Sequence[Any] = [np.zeros(shape, dtype=np.float32) for shape in _past(book, 0)]
        outputs = []
        for index, part in enumerate(_chunks(prompt, layout)):
            hidden, *past = graphs[index](part, *past)
            outputs.append(np.asarray(hidden))
        return np.concatenate(outputs)

    return prefill


def _sharing(book: _ChunkBook, layout: ChunkLayout) -> Callable[[Floats], Floats]:
    """Norms and products once for all chunks; attention for every chunk, in every layer as the paper counts it."""
    size, chunk = book.size, layout.chunk_tokens
    hidden, wide = (chunk, size.width), (chunk, 3 * size.width)
    static = [
        (
            book.compile(lambda h, layer=layer: _norm(h, layer["gain"]), hidden, weights=[layer["gain"]]),
            book.compile(lambda x, layer=layer: _dot(x, layer["w_qkv"]), hidden, weights=[layer["w_qkv"]]),
            book.compile(
                lambda h, x, layer=layer: h + _dot(x, layer["w_out"]), hidden, hidden, weights=[layer["w_out"]]
            ),
            book.compile(lambda h, layer=layer: _norm(h, layer["ffn_gain"]), hidden, weights=[layer["ffn_gain"]]),
            book.compile(
                lambda h, x, layer=layer: h + _ffn(x, layer), hidden, hidden, weights=[layer["w_up"], layer["w_down"]]
            ),
        )
        for layer in book.layers
    ]
    dynamic = [[_attention_graph(book, wide, index * chunk) for index in range(layout.num_chunks)] for _ in book.layers]

    def prefill(prompt: Floats) -> Floats:
        past: list[Any] = [np.zeros((0, 2 * size.width), dtype=np.float32) for _ in book.layers]
        outputs = []
        for index, part in enumerate(_chunks(prompt, layout)):
            h: Any = part
            for layer, (norm, qkv, out, ffn_norm, ffn) in enumerate(static):
                mixed, past[layer] = dynamic[layer][index](qkv(norm(h)), past[layer])
                h = out(h, mixed)
                h = ffn(h, ffn_norm(h))
            outputs.append(np.asarray(h))
        return np.concatenate(outputs)

    return prefill


def _attention_graph(book: _ChunkBook, wide: tuple[int, int], num_past: int) -> Graph:
    size = book.size
    past = (num_past, 2 * size.width)
    return book.compile(lambda qkv, before: _attention(qkv, before, size.num_heads), wide, past, weights=[])


ARMS: Mapping[str, Callable[[_ChunkBook, ChunkLayout], Callable[[Floats], Floats]]] = {
    "whole": _whole,
    "padding": _padding,
    "per_chunk": _per_chunk,
    "sharing": _sharing,
}


def _decoder(book: _ChunkBook) -> Graph:
    """(hidden [S, width], keys and values of each layer [past, 2 width]) -> hidden, and those with these S added."""
    layers, num_heads = book.layers, book.size.num_heads

    def run(hidden: jax.Array, *past: jax.Array) -> tuple[jax.Array, ...]:
        grown = []
        for layer, before in zip(layers, past, strict=True):
            mixed, after = _attention(_dot(_norm(hidden, layer["gain"]), layer["w_qkv"]), before, num_heads)
            hidden = hidden + _dot(mixed, layer["w_out"])
            hidden = hidden + _ffn(_norm(hidden, layer["ffn_gain"]), layer)
            grown.append(after)
        return hidden, *grown

    return run


def _past(book: _ChunkBook, num_past: int) -> list[tuple[int, int]]:
    return [(num_past, 2 * book.size.width)] * book.size.num_layers


def _norm(hidden: jax.Array, gain: Floats) -> jax.Array:
    return hidden * jax.lax.rsqrt(jnp.mean(hidden * hidden, axis=1, keepdims=True) + NORM_EPSILON) * gain


def _dot(x: jax.Array, weight: Floats) -> jax.Array:
    return jnp.dot(x, weight, precision=HIGHEST)


def _ffn(x: jax.Array, layer: Layer) -> jax.Array:
    return _dot(jax.nn.silu(_dot(x, layer["w_up"])), layer["w_down"])


def _attention(qkv: jax.Array, past: jax.Array, num_heads: int) -> tuple[jax.Array, jax.Array]:
    """qkv [S, 3 width], past keys and values [P, 2 width] -> mixed [S, width], keys and values [P + S, 2 width]."""
    length, num_past = qkv.shape[0], past.shape[0]
    queries, new = jnp.split(qkv, [qkv.shape[1] // 3], axis=1)
    keys_values = jnp.concatenate([past, new])
    keys, values = jnp.split(keys_values, 2, axis=1)
    q, k, v = (part.reshape(part.shape[0], num_heads, -1) for part in (queries, keys, values))
    scores = jnp.einsum("shd,thd->hst", q, k, precision=HIGHEST) / np.float32(np.sqrt(q.shape[2]))
    seen = jnp.arange(num_past + length)[None, :] <= num_past + jnp.arange(length)[:, None]
    shares = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=-1)
    return jnp.einsum("hst,thd->shd", shares, v, precision=HIGHEST).reshape(length, -1), keys_values


def _chunks(prompt: Floats, layout: ChunkLayout) -> list[Floats]:
    whole = _padded(prompt, layout.num_chunks * layout.chunk_tokens)
    return np.split(whole, layout.num_chunks)


def _padded(prompt: Floats, length: int) -> Floats:
    """Zeros behind; later positions are unseen by the prompt's own."""
    return np.pad(prompt, ((0, length - len(prompt)), (0, 0)))
