"""The static unit's subgraphs of the pipeline: INT8 products with their weights as constants, run by their flags.

Imported by the static unit's process alone. With chunk sharing one graph serves a product of a layer in all chunks,
without it every chunk has its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pytest_npubench.core.clock import perf_counter
from pytest_npubench.engines.quantization import Floats
from pytest_npubench.extensions.pairs.offload.decoder import DecoderSize, make_layers
from pytest_npubench.extensions.pairs.offload.dispatch import Board, run_unit
from pytest_npubench.extensions.pairs.offload.pipeline import pipeline_dag
from pytest_npubench.extensions.pairs.offload.shadow_kernels import int8_dot
from pytest_npubench.extensions.pairs.partition.matmul import NPU
from pytest_npubench.extensions.pairs.partition.units.arena import SharedArena

MATRICES = {"qkv": "w_qkv", "out": "w_out", "up": "w_up", "down": "w_down"}

_books: dict[str, _PipelineBook] = {}


def build(spec: Mapping[str, Any], arena: SharedArena) -> Callable[[], None]:
    """Returns what runs this unit's share of one whole prefill. spec: name of the variant, sharing, shadow, policy,
    size, chunk_tokens, num_chunks, durations_s by node, scales by layer and matrix."""
    book = _books.setdefault(spec["name"], _PipelineBook(spec))
    size = book.size
    dag = pipeline_dag(num_chunks=spec["num_chunks"], num_layers=size.num_layers, shadow=spec["shadow"])
    dag = dag.with_durations(spec["durations_s"])
    work = {
        index: book.subgraph(arena, dag.nodes[index].stage, dag.nodes[index].layer, dag.nodes[index].chunk)
        for index in dag.of(NPU)
    }
    arena.view(f"{spec['name']}/facts")[:] = book.num_graphs, book.weight_bytes, book.executable_bytes, book.compile_s
    return partial(run_unit, dag, NPU, spec["policy"], Board.join(arena, spec["name"]), work)


def forget() -> None:
    _books.clear()


class _PipelineBook:
    """The graphs of one variant, compiled when first asked for."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self.size = DecoderSize(**spec["size"])
        self.num_graphs = self.weight_bytes = self.executable_bytes = 0
        self.compile_s = 0.0
        self._spec = spec
        self._layers = make_layers(self.size)
        self._graphs: dict[tuple[str, int, int], Callable[..., Any]] = {}

    def subgraph(self, arena: SharedArena, stage: str, layer: int, chunk: int) -> Callable[[], None]:
        """What runs the subgraph once, from and to shared memory."""
        length = self._spec["chunk_tokens"]
        rows = slice(chunk * length, (chunk + 1) * length)
        inputs, output = self._places(stage, layer)
        graph = self._graph(stage, layer, 0 if self._spec["sharing"] else chunk)
        reads = [arena.view(name)[rows] for name in inputs]
        writes = arena.view(output)[rows]

        def run() -> None:
            np.copyto(writes, np.asarray(graph(*map(jnp.asarray, reads))))

        return run

    def _places(self, stage: str, layer: int) -> tuple[tuple[str, ...], str]:
        """Names of the arrays read and of the one written."""
        if stage == "down":
            return (("h", "up", "rest_up") if self._spec["shadow"] else ("h", "up")), "h"
        return {"qkv": (("x",), f"qkv{layer}"), "out": (("h", "mixed"), "h"), "up": (("x",), "up")}[stage]

    def _graph(self, stage: str, layer: int, chunk: int) -> Callable[..., Any]:
        key = stage, layer, chunk
        if key not in self._graphs:
            self._graphs[key] = self._compile(stage, layer)
        return self._graphs[key]

    def _compile(self, stage: str, layer: int) -> Callable[..., Any]:
        weight: Floats = self._layers[layer][MATRICES[stage]]
        product = int8_dot(weight, self._spec["scales"][layer][MATRICES[stage]])
        width = {"qkv": self.size.width, "out": self.size.width, "up": self.size.width, "down": self.size.ffn_width}
        hidden, wide = (self._spec["chunk_tokens"], self.size.width), (self._spec["chunk_tokens"], width[stage])
        graph: Callable[..., Any]
        if stage in ("qkv", "up"):
            graph, shapes = product, [wide]
        elif stage == "out":
            graph, shapes = (lambda h, x: h + product(x)), [hidden, wide]
        else:
            graph = lambda h, *parts: h + product(jax.nn.silu(sum(parts)))  # noqa: E731 (one of four forms)
            shapes = [hidden, wide, wide] if self._spec["shadow"] else [hidden, wide]
        began_s = perf_counter()
        compiled = jax.jit(graph).lower(*(jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes)).compile()
        self.compile_s += perf_counter() - began_s
        self.num_graphs += 1
        self.weight_bytes += weight.size  # INT8
        self.executable_bytes += len(compiled.runtime_executable().serialize())
        kernel: Callable[..., Any] = compiled
        return kernel
