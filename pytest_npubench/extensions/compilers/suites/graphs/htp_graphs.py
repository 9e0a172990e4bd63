"""What cases say of the graphs that Qualcomm's compiler makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_npubench.core.measurement import Phase
from pytest_npubench.extensions.compilers.suites.graphs.htp_plan import HtpPoint, HtpVisit
from pytest_npubench.verdict.result import Metric

Graphs = Mapping[HtpPoint, HtpVisit]
BYTES_MARGIN = 0.001  # a page more or less, 0.01 %, was seen in one compile of many: it places on several threads
ERRORS = ("fp16_error", "max_min_error", "clip_error", "shadow_error")


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
class ProductDetail:
    """A product in INT8 with outliers on the emulated NPU (compilers/qnn/product.py): bytes of its context binaries,
    errors relative to float64, and levels_off of the INT8 output."""

    fp16_bytes: float
    int8_bytes: float
    fp16_error: float
    max_min_error: float
    clip_error: float
    shadow_error: float
    levels_off: float

    @property
    def problems(self) -> list[str]:
        from pytest_npubench.extensions.compilers.qnn.product import LEVELS_OFF

        off = f"the emulated NPU's INT8 is off integer arithmetic by {self.levels_off:g} levels, more than {LEVELS_OFF}"
        lost = f"the shadow path is off by {self.shadow_error:.2g}, INT8 alone by {self.max_min_error:.2g}"
        return [
            *([off] if self.levels_off > LEVELS_OFF else []),
            *([lost] if not self.shadow_error < self.max_min_error else []),
        ]

    @property
    def words(self) -> str:
        return (
            f"with outliers INT8 is off by {self.max_min_error:.2g}, with the shadow path by {self.shadow_error:.2g}, "
            f"fp16 by {self.fp16_error:.2g}, in {self.int8_bytes / 1e6:.1f} MB for {self.fp16_bytes / 1e6:.1f}"
        )


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
    """Returns the graphs that are not one binary each; a small decoder's are two."""
    return [
        f"{point.name.removeprefix('binary/')} is {facts.num_contexts:.0f} context binaries"
        for point, facts in visits.items()
        if facts.num_contexts != (1 if facts.answer_error is None else len(Phase))
    ]


def product_of(visits: Sequence[HtpVisit]) -> ProductDetail | None:
    """None where no product was asked for."""
    if not visits:
        return None
    (facts,) = visits
    figures = {name: getattr(facts, name) for name in (*ERRORS, "levels_off")}
    assert facts.fp16_context_bytes is not None  # the point is one of a product
    return ProductDetail(fp16_bytes=facts.fp16_context_bytes, int8_bytes=facts.context_bytes, **figures)


def product_metrics(product: ProductDetail) -> tuple[Metric, ...]:
    return (
        bytes_metric("int8_context_bytes", product.int8_bytes),
        *(Metric(name=f"product_{name}", unit="", value=getattr(product, name), gate="none") for name in ERRORS),
    )


def bytes_metric(name: str, num_bytes: float) -> Metric:
    """Bytes repeat to a page, so any change beyond BYTES_MARGIN is one."""
    return Metric(name=name, unit="B", value=num_bytes, gate="exact", margin=BYTES_MARGIN)
