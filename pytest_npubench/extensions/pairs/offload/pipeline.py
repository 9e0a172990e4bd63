"""A small decoder's prefill as subgraphs on a real pair: INT8 products on the static unit, the rest on this one.

Two switches say how it is built (chunk sharing, shadow outliers), a policy how it is run. The arrays of chunk i are
written by one subgraph each and lie in shared memory; queries, keys and values are kept for every layer, since later
chunks read them. Without a shadow the inputs of w_qkv and w_up have the per-tensor max-min scale, outliers included;
with one they are clipped, and what the clamp left over is multiplied here, in float32 (quantization).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any

import numpy as np

from pytest_npubench.core.clock import perf_counter
from pytest_npubench.engines.quantization import LEVELS, Floats, calibrate, max_min_scale, relative_error
from pytest_npubench.errors import NpubenchError
from pytest_npubench.extensions.pairs.offload.decoder import NORM_EPSILON, DecoderSize, make_layers, make_prompt, trace
from pytest_npubench.extensions.pairs.offload.dispatch import Board, OtherUnitError, run_unit
from pytest_npubench.extensions.pairs.offload.graph import Stage, SubgraphDag, prefill_dag
from pytest_npubench.extensions.pairs.offload.schedules import IN_ORDER
from pytest_npubench.extensions.pairs.offload.units import GraphFacts, Units, make_arrays
from pytest_npubench.extensions.pairs.partition.matmul import GPU, NPU

PROFILE_BATCH = 1
NUM_PROFILES = 3
SHADOWED = ("w_qkv", "w_up")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """How the graphs are built."""

    sharing: bool
    shadow: bool

    @property
    def name(self) -> str:
        return f"sharing={int(self.sharing)},shadow={int(self.shadow)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRun:
    """One prefill. durations_s: of each node of the graph; bubble_fraction: the share of total_s in which the static
    unit ran nothing."""

    total_s: float
    durations_s: tuple[float, ...]
    bubble_fraction: float
    relative_error: float


def pipeline_dag(*, num_chunks: int, num_layers: int, shadow: bool) -> SubgraphDag:
    """Seven subgraphs a layer, nine with shadows, with durations of one second until they are measured."""
    stage = partial(Stage, base_s=1.0)
    shadow_qkv = (stage(name="shadow_qkv", unit=GPU, follows=("norm",)),) if shadow else ()
    shadow_up = (stage(name="shadow_up", unit=GPU, follows=("ffn_norm",)),) if shadow else ()
    stages = (
        stage(name="norm", unit=GPU),
        stage(name="qkv", unit=NPU),
        *shadow_qkv,
        stage(name="attention", unit=GPU, reads_earlier=True, follows=("qkv", *(each.name for each in shadow_qkv))),
        stage(name="out", unit=NPU),
        stage(name="ffn_norm", unit=GPU),
        stage(name="up", unit=NPU),
        *shadow_up,
        stage(name="down", unit=NPU, follows=("up", *(each.name for each in shadow_up))),
    )
    return prefill_dag(stages, num_chunks=num_chunks, num_layers=num_layers)


class Pipeline:
    """See the module. Runs in the dynamic unit's process; load() before run()."""

    KERNELS = "pytest_npubench.extensions.pairs.offload.pipeline_kernels"

    def __init__(self, size: DecoderSize, units: Units, *, chunk_tokens: int, num_chunks: int) -> None:
        self._size = size
        self._units = units
        self._chunk_tokens = chunk_tokens
        self._num_chunks = num_chunks
        self._layers = make_layers(size)
        self._prompt = make_prompt(size, chunk_tokens * num_chunks)
        self._reference = trace(size, self._prompt)[0]
        self._dags: dict[Variant, SubgraphDag] = {}
        self._boards: dict[Variant, Board] = {}
        self._scales: dict[Variant, list[dict[str, float]]] = {}
        self._keys: set[str] = set()

    def dag(self, variant: Variant) -> SubgraphDag:
        """Returns the graph, with durations as measured at load."""
        return self._dags[variant]

    def facts(self, variant: Variant) -> GraphFacts:
        num_graphs, weight_bytes, executable_bytes, compile_s = self._units.arena.view(f"{variant.name}/facts").tolist()
        return GraphFacts(
            num_graphs=num_graphs, weight_bytes=weight_bytes, executable_bytes=executable_bytes, compile_s=compile_s
        )

    def load(self, variants: Sequence[Variant], policies: Sequence[str]) -> None:
        """Compile what the variants need, and measure every subgraph in a few runs in order."""
        make_arrays(self._units.arena, self._shapes())
        for variant in variants:
            self._load(variant, policies)

    def run(self, variant: Variant, policy: str, *, stalls_s: Sequence[float] | None = None) -> PipelineRun:
        """One prefill; stalls_s: seconds of sleep before each node. Raises MeasurementError where a unit gave up."""
        arena, board, dag = self._units.arena, self._boards[variant], self._dags[variant]
        board.clear()
        board.stall_s[:] = 0.0 if stalls_s is None else stalls_s
        arena.view("h")[:] = self._prompt
        self._units.static.arm()
        began_s = perf_counter()
        self._units.static.submit([f"{variant.name}/{policy}"])
        self._run_here(variant, policy)
        self._units.static.wait()
        total_s = float(board.ended_s.max()) - began_s
        durations = board.ended_s - board.started_s
        return PipelineRun(
            total_s=total_s,
            durations_s=tuple(durations.tolist()),
            bubble_fraction=1.0 - float(durations[list(dag.of(NPU))].sum()) / total_s,
            relative_error=relative_error(arena.view("h"), self._reference),
        )

    def _run_here(self, variant: Variant, policy: str) -> None:
        """This unit's share. What went wrong is told by the unit where it did, and the static one is always awaited."""
        try:
            run_unit(
                self._dags[variant],
                GPU,
                policy,
                self._boards[variant],
                self._work(variant),
                check=self._units.static.check,
            )
        except OtherUnitError:
            self._units.static.wait()
            raise
        except BaseException:
            with suppress(NpubenchError):
                self._units.static.wait()
            raise

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        size, tokens = self._size, self._chunk_tokens * self._num_chunks
        inner = {f"{name}{layer}": 3 * size.width for name in ("qkv", "rest_qkv") for layer in range(size.num_layers)}
        widths = {
            "h": size.width,
            "x": size.width,
            "mixed": size.width,
            "up": size.ffn_width,
            "rest_up": size.ffn_width,
        }
        return {name: (tokens, width) for name, width in {**widths, **inner}.items()}

    def _load(self, variant: Variant, policies: Sequence[str]) -> None:
        arena, name = self._units.arena, variant.name
        self._scales[variant] = self._calibrated(variant.shadow)
        dag = pipeline_dag(num_chunks=self._num_chunks, num_layers=self._size.num_layers, shadow=variant.shadow)
        self._dags[variant] = dag
        self._boards[variant] = Board.make(arena, name, len(dag))
        arena.allocate(f"{name}/facts", (len(fields(GraphFacts)),), "float64")
        self._build(variant, IN_ORDER)
        profiles = [self.run(variant, IN_ORDER).durations_s for _ in range(NUM_PROFILES)]
        self._dags[variant] = dag.with_durations(np.median(profiles, axis=0).tolist())
        for policy in policies:
            self._build(variant, policy)

    def _build(self, variant: Variant, policy: str) -> None:
        dag = self._dags[variant]
        spec = {
            "name": variant.name,
            "sharing": variant.sharing,
            "shadow": variant.shadow,
            "policy": policy,
            "size": asdict(self._size),
            "chunk_tokens": self._chunk_tokens,
            "num_chunks": self._num_chunks,
            "durations_s": [node.duration_s for node in dag.nodes],
            "scales": self._scales[variant],
        }
        self._units.static.build(f"{variant.name}/{policy}", spec)

    def _calibrated(self, shadow: bool) -> list[dict[str, float]]:
        """Returns the scale of each matrix's input, by layer, from a profile of another prompt."""
        profile = make_prompt(self._size, len(self._prompt), batch=PROFILE_BATCH)
        _, entered = trace(self._size, profile)
        num_hot = self._size.num_outliers if shadow else 0
        return [
            {name: calibrate(x, num_hot).scale if name in SHADOWED else max_min_scale(x) for name, x in inputs.items()}
            for inputs in entered
        ]

    def _work(self, variant: Variant) -> dict[int, Callable[[], None]]:
        """This unit's subgraphs, by node."""
        dag = self._dags[variant]
        chunks = [_Chunk(self, variant, index) for index in range(self._num_chunks)]
        return {
            index: partial(getattr(chunks[dag.nodes[index].chunk], dag.nodes[index].stage), dag.nodes[index].layer)
            for index in dag.of(GPU)
        }

    def tensors(self, name: str, rows: slice) -> Any:
        import torch

        return torch.from_numpy(self._units.arena.view(name)[rows])

    def weights(self, name: str, layer: int) -> Floats:
        return self._layers[layer][name]

    def limit(self, variant: Variant, name: str, layer: int) -> float:
        return LEVELS * self._scales[variant][layer][name]

    def rows(self, chunk: int) -> slice:
        return slice(chunk * self._chunk_tokens, (chunk + 1) * self._chunk_tokens)

    @property
    def num_heads(self) -> int:
        return self._size.num_heads


class _Chunk:
    """The dynamic unit's subgraphs of one chunk; each is a method named as its stage."""

    def __init__(self, pipeline: Pipeline, variant: Variant, chunk: int) -> None:
        self._pipeline = pipeline
        self._variant = variant
        self._rows = pipeline.rows(chunk)

    def norm(self, layer: int) -> None:
        self._norm("gain", layer)

    def ffn_norm(self, layer: int) -> None:
        self._norm("ffn_gain", layer)

    def shadow_qkv(self, layer: int) -> None:
        self._shadow("w_qkv", f"rest_qkv{layer}", layer)

    def shadow_up(self, layer: int) -> None:
        self._shadow("w_up", "rest_up", layer)

    def attention(self, layer: int) -> None:
        """Queries of this chunk over keys and values of all up to it; both units' parts are added as they are read."""
        import torch

        pipeline, seen = self._pipeline, slice(0, self._rows.stop)
        qkv = pipeline.tensors(f"qkv{layer}", seen)
        if self._variant.shadow:
            qkv = qkv + pipeline.tensors(f"rest_qkv{layer}", seen)
        q, k, v = (part.unflatten(1, (pipeline.num_heads, -1)).transpose(0, 1) for part in qkv.chunk(3, dim=1))
        length, total = self._rows.stop - self._rows.start, self._rows.stop
        mask = torch.ones(length, total, dtype=torch.bool).tril(total - length)
        mixed = torch.nn.functional.scaled_dot_product_attention(q[None, :, self._rows], k[None], v[None], mask)
        pipeline.tensors("mixed", self._rows).copy_(mixed[0].transpose(0, 1).flatten(1))

    def _norm(self, gain: str, layer: int) -> None:
        import torch

        hidden = self._pipeline.tensors("h", self._rows)
        scale = torch.rsqrt(hidden.square().mean(dim=1, keepdim=True) + NORM_EPSILON)
        torch.mul(
            hidden * scale,
            torch.from_numpy(self._pipeline.weights(gain, layer)),
            out=self._pipeline.tensors("x", self._rows),
        )

    def _shadow(self, name: str, rest: str, layer: int) -> None:
        import torch

        x, limit = self._pipeline.tensors("x", self._rows), self._pipeline.limit(self._variant, name, layer)
        output = self._pipeline.tensors(rest, self._rows)
        outliers = (x.abs().amax(dim=0) > limit).nonzero().flatten()
        some = x[:, outliers]
        weights = torch.from_numpy(self._pipeline.weights(name, layer))
        torch.mm(some - some.clamp(-limit, limit), weights[outliers], out=output)
