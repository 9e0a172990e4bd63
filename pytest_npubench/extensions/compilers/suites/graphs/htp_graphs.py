"""What cases say of the graphs that Qualcomm's compiler makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_npubench.core.measurement import Phase
from pytest_npubench.extensions.compilers.suites.graphs.htp_plan import HtpPoint, HtpVisit
from pytest_npubench.extensions.compilers.suites.graphs.htp_product import ProductDetail

Graphs = Mapping[HtpPoint, HtpVisit]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerDetail:
    """One layer's graph: bytes of its context binary and of its weights, CPU seconds of compiling, wall seconds of the
    compiler's phases, on-chip memory (VTCM), what spills from it and what never is in it."""

    context_bytes: float
    weight_bytes: float
    compile_cpu_s: float
    optimize_s: float | None
    sequence_s: float | None
    vtcm_s: float | None
    vtcm_bytes: float | None = None
    spill_bytes: float | None = None
    dram_tensor_bytes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunksDetail:
    """A prompt in num_chunks chunks: graphs of the whole decoder, bytes of one layer's context binaries and CPU seconds
    of making them, with a graph for every chunk and with shared ones."""

    num_chunks: int
    per_chunk_graphs: int
    sharing_graphs: int
    per_chunk_bytes: float
    sharing_bytes: float
    per_chunk_cpu_s: float
    sharing_cpu_s: float

    @property
    def saved_fraction(self) -> float:
        """Of the bytes, by sharing."""
        return 1 - self.sharing_bytes / self.per_chunk_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class HtpDetail:
    """`graphs`: a layer's, by phase. need_bytes: the decoder's weights once, what the graphs of this bucket and all
    smaller ones have beside theirs, and their caches. answer_error: of the emulated NPU's, with its limit.
    whole: what became of the whole decode graph, where the case has it. chunks: of a prompt in chunks. product: in INT8
    with outliers."""

    bucket: int | None = None
    graphs: Mapping[str, LayerDetail] | None = None
    head_bytes: float | None = None
    need_bytes: float | None = None
    room_bytes: float | None = None
    answer_error: float | None = None
    answer_limit: float | None = None
    whole: str | None = None
    chunks: ChunksDetail | None = None
    product: ProductDetail | None = None


def split(visits: Graphs) -> list[str]:
    """The graphs that are not one binary each; a small decoder's are two."""
    return [
        f"{point.name.removeprefix('binary/')} is {facts.num_contexts:.0f} context binaries"
        for point, facts in visits.items()
        if facts.num_contexts != (1 if facts.answer_error is None else len(Phase))
    ]
