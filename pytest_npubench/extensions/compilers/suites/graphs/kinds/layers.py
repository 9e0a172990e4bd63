"""A layer's graphs of a bucket and the head by Qualcomm's compiler: what all loaded graphs need of the device's memory,
and a small decoder's answers on the emulated NPU."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Case
from pytest_npubench.core.measurement import Phase
from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.extensions.compilers.compiled.runtime import TITLE
from pytest_npubench.extensions.compilers.hub.graph import DTYPE_BYTES
from pytest_npubench.extensions.compilers.suites.graphs.htp_graphs import (
    Graphs,
    HtpDetail,
    LayerDetail,
    bytes_metric,
    split,
)
from pytest_npubench.extensions.compilers.suites.graphs.htp_plan import HtpPlan, HtpPoint, HtpVisit
from pytest_npubench.extensions.compilers.suites.programs import (
    BucketCases,
    failed,
    fit_words,
    gigabytes,
    last_visit,
    refused,
    verdict,
)
from pytest_npubench.verdict.result import Judgement, Metric


class LayersKind(BucketCases):
    name = "layers"
    suite = "graphs"

    def points(self, case: Case, plan: HtpPlan) -> tuple[HtpPoint, ...]:
        bucket = int(case.axis("bucket"))
        whole = (plan.whole,) if bucket == plan.buckets[-1] else ()
        return (*plan.layers(plan.up_to(bucket)), plan.head, plan.answers(bucket), *whole)

    def judge(self, case: Case, plan: HtpPlan, measured: Measured) -> Judgement:
        from pytest_npubench.extensions.compilers.qnn.answers import LIMIT

        bucket, points = int(case.axis("bucket")), self.points(case, plan)
        if reason := refused(points, measured):
            return failed(reason)
        visits = {point: last_visit(measured, point, HtpVisit) for point in points if point != plan.whole}
        layers = {phase: visits[HtpPoint(phase=phase, bucket=bucket)] for phase in Phase}
        needed_bytes, room_bytes = need_bytes(plan, visits), plan.spec.device_memory_bytes
        too_much, fits = fit_words(needed_bytes, room_bytes)
        error = visits[plan.answers(bucket)].answer_error
        assert error is not None  # the point is one of answers
        whole = _whole(plan, measured) if plan.whole in points else None
        problems = [
            *split(visits),
            *([f"the emulated NPU's answers are off by {error:.2g}, more than {LIMIT:.2g}"] if error > LIMIT else []),
            *too_much,
        ]
        sizes = ", ".join(f"{phase.value} {facts.context_bytes / 1e6:.1f} MB" for phase, facts in layers.items())
        words = [
            f"{TITLE}: {fits} with all smaller buckets",
            f"a layer: {sizes}",
            *spilled(layers),
            f"answers within {error:.2g}",
            *([whole] if whole else []),
        ]
        return Judgement(
            verdict=verdict(problems, words),
            what=f"graphs of bucket {bucket}",
            metrics=_metrics(layers, needed_bytes, error),
            detail=HtpDetail(
                bucket=bucket,
                graphs={phase.value: _detail(facts) for phase, facts in layers.items()},
                head_bytes=visits[plan.head].context_bytes,
                need_bytes=needed_bytes,
                room_bytes=room_bytes,
                answer_error=error,
                answer_limit=LIMIT,
                whole=whole,
            ),
        )


def _metrics(layers: Mapping[Phase, HtpVisit], needed_bytes: float, answer_error: float) -> tuple[Metric, ...]:
    return (
        *(bytes_metric(f"{phase.value}_context_bytes", facts.context_bytes) for phase, facts in layers.items()),
        *(
            Metric(name=f"{phase.value}_spill_bytes", unit="B", value=facts.spill_bytes, gate="none")
            for phase, facts in layers.items()
            if facts.spill_bytes is not None
        ),
        bytes_metric("need_bytes", needed_bytes),
        Metric(name="answer_error", unit="", value=answer_error, gate="accuracy"),
        Metric(
            name="compile_cpu_s",
            unit="s",
            value=sum(facts.compile_cpu_s for facts in layers.values()),
            gate="none",  # its threads share the cores: a busy machine alone makes them 1.6 times as many
        ),
    )


def spilled(layers: Mapping[Phase, HtpVisit]) -> list[str]:
    """What spills from on-chip memory, where the binaries tell."""
    spills = {
        phase: (facts.spill_bytes, facts.vtcm_bytes)
        for phase, facts in layers.items()
        if facts.spill_bytes is not None and facts.vtcm_bytes
    }
    if not spills:
        return []
    size = max(vtcm for _, vtcm in spills.values()) / 2**20
    parts = ", ".join(f"{phase.value} spills {spill / 1e6:.1f} MB" for phase, (spill, _) in spills.items())
    return [f"VTCM {size:.0f} MiB, {parts}"]


def need_bytes(plan: HtpPlan, visits: Graphs) -> float:
    """Of the device with these graphs loaded: weights of all layers and the table of tokens once, what each layer's
    binaries hold beside weights, the head's binary, the caches of every bucket, and the tensors that the graph which
    runs has in DRAM, the most of all."""
    shape = plan.graph(plan.head).shape
    layers = {point: facts for point, facts in visits.items() if point in plan.layers(plan.buckets)}
    weights = max(facts.weight_bytes for facts in layers.values())
    beside = sum(facts.context_bytes - facts.weight_bytes for facts in layers.values())
    buckets = {point.bucket for point in layers}
    table = shape.vocab_size * shape.hidden * DTYPE_BYTES[plan.spec.dtype]
    return (
        shape.num_layers * (weights + beside)
        + visits[plan.head].context_bytes
        + table
        + max(facts.dram_tensor_bytes or 0 for facts in layers.values())
        + sum(cache_bytes(shape, plan.spec.dtype, plan.batch_size, bucket) for bucket in buckets)
    )


def cache_bytes(shape: DecoderShape, dtype: str, batch_size: int, bucket: int) -> int:
    """Keys and values of a bucket."""
    return shape.kv_bytes_per_token(DTYPE_BYTES[dtype]) * batch_size * bucket


def _whole(plan: HtpPlan, measured: Measured) -> str:
    """What became of the whole decode graph; that this machine is too small for it is no fault of the graph's."""
    if reason := measured.failures.get(plan.whole.name):
        return f"the whole decode graph {reason}"
    facts = last_visit(measured, plan.whole, HtpVisit)
    more = facts.context_bytes / facts.weight_bytes
    return (
        f"the whole decode graph is {gigabytes(facts.context_bytes)}, {more:.2f} times its weights, "
        f"made in {facts.compile_cpu_s:.0f} s"
    )


def _detail(facts: HtpVisit) -> LayerDetail:
    return LayerDetail(
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


KIND = LayersKind()
