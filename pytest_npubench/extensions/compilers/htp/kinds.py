"""The kinds of bucket cases on Qualcomm's compiler. Ids and axes are those of a device; what is behind them differs.

profile     a layer's graphs of a bucket and the head; what all loaded graphs need; a small decoder's answers
steps       what the prefill graph costs to make, beside the next bucket's; what it takes in chunks, each with a graph
            of its own or sharing what no chunk changes (llm.npu, section 3.2); with one bucket a product in INT8 with
            outliers, with and without the shadow path (section 3.3), against fp16
prediction  the graphs that a workload's batches touch
mean_error, canary   nothing runs on a phone, so there is nothing to measure

A case fails where the NPU does not take an operator, where a graph becomes more than one context binary, where the
emulated NPU's answers are off, where its INT8 is off integer arithmetic or the shadow path does not help, or where all
of it is more than the device's memory. Bytes repeat to a page, so any change beyond BYTES_MARGIN is one
(verdict/exact.py). The compiler tells no cycles of the NPU: nothing here is a time of a phone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.protocol import CaseKind
from pytest_npubench.core.case import Case
from pytest_npubench.core.measurement import Phase
from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.errors import MeasurementError
from pytest_npubench.extensions.compilers.buckets.kinds import CompiledKind, failed, gigabytes, refused
from pytest_npubench.extensions.compilers.compiled.runtime import TITLE
from pytest_npubench.extensions.compilers.htp.plan import HtpPlan, HtpPoint, HtpVisit
from pytest_npubench.extensions.compilers.htp.product import BYTES_MARGIN, ProductDetail, product_metrics, product_of
from pytest_npubench.extensions.compilers.hub.graph import DTYPE_BYTES
from pytest_npubench.extensions.compilers.qnn.facts import Part
from pytest_npubench.verdict import Verdict, VerdictKind
from pytest_npubench.verdict.result import Judgement, Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphDetail:
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
    graphs: Mapping[str, GraphDetail] | None = None
    head_bytes: float | None = None
    need_bytes: float | None = None
    room_bytes: float | None = None
    answer_error: float | None = None
    answer_limit: float | None = None
    whole: str | None = None
    chunks: ChunksDetail | None = None
    product: ProductDetail | None = None


class HtpProfileKind(CompiledKind):
    def points(self, case: Case, plan: HtpPlan) -> tuple[HtpPoint, ...]:  # type: ignore[override]  # as the service
        bucket = int(case.axis("bucket"))
        whole = (plan.whole,) if bucket == plan.buckets[-1] else ()
        return (*plan.layers(plan.up_to(bucket)), plan.head, plan.answers(bucket), *whole)

    def judge(self, case: Case, plan: HtpPlan, measured: Measured) -> Judgement:  # type: ignore[override]
        from pytest_npubench.extensions.compilers.qnn.answers import LIMIT

        bucket, points = int(case.axis("bucket")), self.points(case, plan)
        if reason := refused(points, measured):
            return failed(plan, reason)
        found = {point: _facts(measured, point) for point in points if point != plan.whole}
        graphs = {phase: found[HtpPoint(phase=phase, bucket=bucket)] for phase in Phase}
        need, room = need_bytes(plan, found), plan.spec.device_memory_bytes
        error = found[plan.answers(bucket)].answer_error
        assert error is not None  # the point is one of answers
        whole = _whole(plan, measured) if plan.whole in points else None
        problems = [
            *_split(found),
            *([f"the emulated NPU's answers are off by {error:.2g}, more than {LIMIT:.2g}"] if error > LIMIT else []),
            *([f"{gigabytes(need)} are more than a device's {gigabytes(room)}"] if room and need > room else []),
        ]
        fits = f"{gigabytes(need)} of {gigabytes(room)}" if room else f"{gigabytes(need)} needed"
        sizes = ", ".join(f"{phase.value} {facts.context_bytes / 1e6:.1f} MB" for phase, facts in graphs.items())
        words = [
            f"{TITLE}: {fits} with all smaller buckets",
            f"a layer: {sizes}",
            *spilled(graphs),
            f"answers within {error:.2g}",
        ]
        return Judgement(
            verdict=Verdict(
                kind=VerdictKind.FAILED if problems else VerdictKind.PASSED,
                reason="; ".join([*problems, *words, *([whole] if whole else [])]),
            ),
            what=f"graphs of bucket {bucket}",
            metrics=(
                *(
                    Metric(
                        name=f"{phase.value}_context_bytes",
                        unit="B",
                        value=facts.context_bytes,
                        gate="exact",
                        margin=BYTES_MARGIN,
                    )
                    for phase, facts in graphs.items()
                ),
                *(
                    Metric(name=f"{phase.value}_spill_bytes", unit="B", value=facts.spill_bytes, gate="none")
                    for phase, facts in graphs.items()
                    if facts.spill_bytes is not None
                ),
                Metric(name="need_bytes", unit="B", value=need, gate="exact", margin=BYTES_MARGIN),
                Metric(name="answer_error", unit="", value=error, gate="accuracy"),
                Metric(
                    name="compile_cpu_s",
                    unit="s",
                    value=sum(facts.compile_cpu_s for facts in graphs.values()),
                    gate="none",  # its threads share the cores: a busy machine alone makes them 1.6 times as many
                ),
            ),
            engine=plan.engine,
            detail=HtpDetail(
                bucket=bucket,
                graphs={phase.value: _detail(facts) for phase, facts in graphs.items()},
                head_bytes=found[plan.head].context_bytes,
                need_bytes=need,
                room_bytes=room,
                answer_error=error,
                answer_limit=LIMIT,
                whole=whole,
            ),
        )


class HtpStepsKind(CompiledKind):
    def points(self, case: Case, plan: HtpPlan) -> tuple[HtpPoint, ...]:  # type: ignore[override]  # as the service
        index = plan.buckets.index(int(case.axis("bucket")))
        steps = (HtpPoint(phase=Phase.PREFILL, bucket=bucket) for bucket in plan.buckets[index : index + 2])
        bucket = plan.buckets[index]
        return (*steps, *plan.chunks(bucket), *plan.products(bucket))

    def judge(self, case: Case, plan: HtpPlan, measured: Measured) -> Judgement:  # type: ignore[override]
        points = self.points(case, plan)
        if reason := refused(points, measured):
            return failed(plan, reason)
        found = [_facts(measured, point) for point in points if point.part is Part.LAYER]
        product = product_of([_facts(measured, point) for point in plan.products(points[0].bucket)])
        problems = product.problems if product else []
        chunks = chunked(plan, {point: _facts(measured, point) for point in plan.chunks(points[0].bucket)})
        own = (
            f"{TITLE}: one graph for every length of bucket {points[0].bucket}, made in {found[0].compile_cpu_s:.1f} s"
        )
        ratio = found[1].compile_cpu_s / found[0].compile_cpu_s if len(found) > 1 else 0.0
        jump = f"; the next bucket's takes x{ratio:.2f}" if len(found) > 1 else ", the largest"
        in_chunks = (
            ""
            if chunks is None
            else (
                f"; in {chunks.num_chunks} chunks sharing saves {chunks.saved_fraction:.0%} of a layer's "
                f"{chunks.per_chunk_bytes / 1e6:.0f} MB"
            )
        )
        return Judgement(
            verdict=Verdict(
                kind=VerdictKind.FAILED if problems else VerdictKind.PASSED,
                reason="; ".join([*problems, own + jump + in_chunks, *([product.words] if product else [])]),
            ),
            what=f"prefill graph of {points[0].bucket} tokens",
            metrics=(
                Metric(
                    name="prefill_context_bytes",
                    unit="B",
                    value=found[0].context_bytes,
                    gate="exact",
                    margin=BYTES_MARGIN,
                ),
                *(
                    Metric(name=name, unit="B", value=getattr(chunks, name), gate="exact", margin=BYTES_MARGIN)
                    for name in ("per_chunk_bytes", "sharing_bytes")
                    if chunks is not None
                ),
                *(product_metrics(product) if product else ()),
                Metric(name="compile_cpu_s", unit="s", value=found[0].compile_cpu_s, gate="none"),
            ),
            engine=plan.engine,
            detail=HtpDetail(bucket=points[0].bucket, chunks=chunks, product=product),
        )


class HtpPredictionKind(CompiledKind):
    def points(self, case: Case, plan: HtpPlan) -> tuple[HtpPoint, ...]:  # type: ignore[override]  # as the service
        return (*plan.layers(plan.touched(plan.draws(str(case.axis("workload"))))), plan.head)

    def judge(self, case: Case, plan: HtpPlan, measured: Measured) -> Judgement:  # type: ignore[override]
        points = self.points(case, plan)
        if reason := refused(points, measured):
            return failed(plan, reason)
        found = {point: _facts(measured, point) for point in points}
        problems, number = _split(found), sum(facts.num_contexts for facts in found.values())
        words = f"{TITLE}: {len(points)} graphs, one layer for all, serve every batch; no phone ran them"
        return Judgement(
            verdict=Verdict(
                kind=VerdictKind.FAILED if problems else VerdictKind.PASSED, reason="; ".join([*problems, words])
            ),
            what=f"graphs of {case.axis('workload')}",
            metrics=(Metric(name="binaries", unit="", value=number, gate="exact"),),
            engine=plan.engine,
            detail=HtpDetail(),
        )


KINDS: Mapping[str, type[CompiledKind]] = {
    "profile": HtpProfileKind,
    "steps": HtpStepsKind,
    "prediction": HtpPredictionKind,
}


def htp_kind_for(kind: CaseKind[Any]) -> CaseKind[Any]:
    """The kind that stands in `kind`'s place."""
    return KINDS.get(kind.name, CompiledKind)(kind)


def chunked(plan: HtpPlan, found: Mapping[HtpPoint, HtpVisit]) -> ChunksDetail | None:
    """Of a prompt's chunks; None where it has none. Graphs are counted by llm.npu's closed form, of two subgraphs a
    layer that are shared and one that is not."""
    from pytest_npubench.engines.chunk_layout import ChunkLayout
    from pytest_npubench.extensions.compilers.qnn.chunks import CHUNK_TOKENS

    if not found:
        return None
    alone = [facts for point, facts in found.items() if point.part is Part.CHUNK]
    shared = [facts for point, facts in found.items() if point.part is not Part.CHUNK]
    layout = ChunkLayout(
        prompt_tokens=max(point.bucket for point in found),
        chunk_tokens=CHUNK_TOKENS,
        num_layers=plan.graph(plan.whole).shape.num_layers,
        num_stages=3,
    )
    return ChunksDetail(
        num_chunks=len(alone),
        per_chunk_graphs=layout.num_graphs("per_chunk"),
        sharing_graphs=layout.num_graphs("sharing"),
        per_chunk_bytes=sum(facts.context_bytes for facts in alone),
        sharing_bytes=sum(facts.context_bytes for facts in shared),
        per_chunk_cpu_s=sum(facts.compile_cpu_s for facts in alone),
        sharing_cpu_s=sum(facts.compile_cpu_s for facts in shared),
    )


def spilled(graphs: Mapping[Phase, HtpVisit]) -> list[str]:
    """What spills from on-chip memory, where the binaries tell."""
    told = {
        phase: (facts.spill_bytes, facts.vtcm_bytes)
        for phase, facts in graphs.items()
        if facts.spill_bytes is not None and facts.vtcm_bytes
    }
    if not told:
        return []
    size = max(vtcm for _, vtcm in told.values()) / 2**20
    parts = ", ".join(f"{phase.value} spills {spill / 1e6:.1f} MB" for phase, (spill, _) in told.items())
    return [f"VTCM {size:.0f} MiB, {parts}"]


def need_bytes(plan: HtpPlan, found: Mapping[HtpPoint, HtpVisit]) -> float:
    """Of the device with these graphs loaded: weights of all layers and the table of tokens once, what each layer's
    binaries hold beside weights, the head's binary, the caches of every bucket, and the tensors that the graph which
    runs has in DRAM, the most of all."""
    shape = plan.graph(plan.head).shape
    layers = {point: facts for point, facts in found.items() if point in plan.layers(plan.buckets)}
    weights = max(facts.weight_bytes for facts in layers.values())
    beside = sum(facts.context_bytes - facts.weight_bytes for facts in layers.values())
    buckets = {point.bucket for point in layers}
    table = shape.vocab_size * shape.hidden * DTYPE_BYTES[plan.spec.dtype]
    return (
        shape.num_layers * (weights + beside)
        + found[plan.head].context_bytes
        + table
        + max(facts.dram_tensor_bytes or 0 for facts in layers.values())
        + sum(cache_bytes(shape, plan.spec.dtype, plan.batch_size, bucket) for bucket in buckets)
    )


def cache_bytes(shape: DecoderShape, dtype: str, batch_size: int, bucket: int) -> int:
    """Keys and values of a bucket."""
    return shape.kv_bytes_per_token(DTYPE_BYTES[dtype]) * batch_size * bucket


def _split(found: Mapping[HtpPoint, HtpVisit]) -> list[str]:
    """The graphs that are not one binary each; a small decoder's are two."""
    return [
        f"{point.name.removeprefix('binary/')} is {facts.num_contexts:.0f} context binaries"
        for point, facts in found.items()
        if facts.num_contexts != (1 if facts.answer_error is None else len(Phase))
    ]


def _whole(plan: HtpPlan, measured: Measured) -> str:
    """What became of the whole decode graph; that this machine is too small for it is no fault of the graph's."""
    if reason := measured.failures.get(plan.whole.name):
        return f"the whole decode graph {reason}"
    facts = _facts(measured, plan.whole)
    more = facts.context_bytes / facts.weight_bytes
    return (
        f"the whole decode graph is {gigabytes(facts.context_bytes)}, {more:.2f} times its weights, "
        f"made in {facts.compile_cpu_s:.0f} s"
    )


def _detail(facts: HtpVisit) -> GraphDetail:
    return GraphDetail(
        context_bytes=facts.context_bytes,
        weight_bytes=facts.weight_bytes,
        compile_cpu_s=facts.compile_cpu_s,
        optimize_s=facts.optimize_s,
        sequence_s=facts.sequence_s,
        vtcm_s=facts.vtcm_s,
        vtcm_bytes=facts.vtcm_bytes,
        spill_bytes=facts.spill_bytes,
        dram_tensor_bytes=facts.dram_tensor_bytes,
    )


def _facts(measured: Measured, point: HtpPoint) -> HtpVisit:
    """Raises MeasurementError with the reason where it could not be had."""
    visits: Sequence[Sequence[HtpVisit]] = measured.visits(point.name, HtpVisit)
    if not visits or not visits[-1]:
        raise MeasurementError(f"{point.name}: nothing is on record")
    return visits[-1][-1]
