"""Chunk-sharing graphs: four ways to have static graphs for a prompt of any length (llm.npu, section 3.2).

    whole      one graph for exactly this length; another length needs another graph, compiled while the user waits
    padding    one graph for the longest length, the prompt padded to it
    per_chunk  fixed-size chunks, one graph for each chunk's place, each with all weights
    sharing    fixed-size chunks; norms and products once for all chunks, attention for every chunk

What a visit leaves is ChunkVisit; its counts have a closed form: chunk_layout.

Worked number: prompt 200, chunk 64, 2 layers: 4 chunks, sharing has 2 * 5 + 2 * 4 = 18 graphs, weights once;
per_chunk 4 graphs, weights 4 times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields

from pytest_npubench.core.clock import perf_counter
from pytest_npubench.engines.chunk_layout import ARMS, ChunkLayout
from pytest_npubench.engines.quantization import Floats, relative_error
from pytest_npubench.extensions.pairs.offload.decoder import DYNAMIC_STAGES, STAGES, DecoderSize, make_prompt, reference
from pytest_npubench.extensions.pairs.offload.units import (
    Figures,
    GraphFacts,
    OffloadPoint,
    Units,
    make_arrays,
    point_of,
)

EXPERIMENT = "chunk_graphs"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkSettings:
    """One decoder, one chunk size, prompts of these lengths, the longest of them also the padded one."""

    size: DecoderSize = field(default_factory=lambda: DecoderSize(num_outliers=0))
    chunk_tokens: int = 64
    prompt_tokens: tuple[int, ...] = (65, 128, 200, 256)

    def __post_init__(self) -> None:
        self.layouts()

    def layouts(self) -> Mapping[int, ChunkLayout]:
        """Returns the layouts by prompt length. Raises ConfigError for a length that cannot be laid out."""
        longest = max(self.prompt_tokens, default=0)
        return {length: self._layout(length, longest) for length in self.prompt_tokens}

    def _layout(self, length: int, longest: int) -> ChunkLayout:
        return ChunkLayout(
            prompt_tokens=length,
            chunk_tokens=self.chunk_tokens,
            num_layers=self.size.num_layers,
            num_stages=len(STAGES),
            num_dynamic_stages=len(DYNAMIC_STAGES),
            padded_tokens=longest,
        )

    def points(self) -> tuple[OffloadPoint, ...]:
        return tuple(
            OffloadPoint(experiment=EXPERIMENT, arm=arm, setting=f"{length} tokens")
            for length in self.prompt_tokens
            for arm in ARMS
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkVisit(GraphFacts, Figures):
    """run_s: the static unit's own time within total_s. computed_tokens: positions, padding included."""

    run_s: float
    total_s: float
    computed_tokens: float
    relative_error: float


class ChunkGraphBench:
    """See the module."""

    KERNELS = "pytest_npubench.extensions.pairs.offload.chunk_kernels"

    def __init__(self, settings: ChunkSettings, units: Units) -> None:
        self.points = settings.points()
        self._settings = settings
        self._units = units
        self._references: dict[int, Floats] = {}

    def load(self) -> None:
        arena, size = self._units.arena, self._settings.size
        for length, layout in self._settings.layouts().items():
            shape = (length, size.width)
            make_arrays(arena, {f"{length}/prompt": shape, f"{length}/output": shape})
            arena.view(f"{length}/prompt")[:] = make_prompt(size, length)
            self._references[length] = reference(size, arena.view(f"{length}/prompt"))
            for point in self.points:
                if point.setting == f"{length} tokens":
                    self._build(point, length, layout)

    def _build(self, point: OffloadPoint, length: int, layout: ChunkLayout) -> None:
        self._units.arena.allocate(f"{point.name}/facts", (len(fields(GraphFacts)),), "float64")
        spec = {
            "arm": point.arm,
            "size": asdict(self._settings.size),
            "layout": asdict(layout),
            "prompt": f"{length}/prompt",
            "output": f"{length}/output",
            "facts": f"{point.name}/facts",
        }
        self._units.static.build(point.name, spec)

    def measure(self, name: str) -> ChunkVisit:
        point = point_of(self.points, name)
        length = int(point.setting.split()[0])
        arena = self._units.arena
        self._units.static.arm()
        began_s = perf_counter()
        self._units.static.submit([name])
        static_s = self._units.static.wait()[0]
        total_s = perf_counter() - began_s
        num_graphs, weight_bytes, executable_bytes, compile_s = arena.view(f"{name}/facts").tolist()
        return ChunkVisit(
            num_graphs=num_graphs,
            weight_bytes=weight_bytes,
            executable_bytes=executable_bytes,
            compile_s=compile_s,
            run_s=static_s,
            total_s=total_s,
            computed_tokens=self._settings.layouts()[length].computed_tokens(point.arm),
            relative_error=relative_error(arena.view(f"{length}/output"), self._references[length]),
        )
