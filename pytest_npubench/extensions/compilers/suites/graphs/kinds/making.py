"""What a bucket's prefill graph costs to make by Qualcomm's compiler, beside the next bucket's.

And what it takes in chunks, each with a graph of its own or sharing what no chunk changes (llm.npu, section 3.2); with
one bucket a product in INT8 with outliers, with and without the shadow path (section 3.3), against fp16.
"""

from __future__ import annotations

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Case
from pytest_npubench.core.measurement import Phase
from pytest_npubench.extensions.compilers.compiled.runtime import TITLE
from pytest_npubench.extensions.compilers.qnn.facts import Part
from pytest_npubench.extensions.compilers.suites.graphs.htp_graphs import (
    ChunksDetail,
    Graphs,
    HtpDetail,
    bytes_metric,
    product_metrics,
    product_of,
)
from pytest_npubench.extensions.compilers.suites.graphs.htp_plan import HtpPlan, HtpPoint, HtpVisit
from pytest_npubench.extensions.compilers.suites.programs import BucketCases, failed, last_visit, refused, verdict
from pytest_npubench.verdict.result import Judgement, Metric


class MakingKind(BucketCases):
    name = "making"
    suite = "graphs"

    def points(self, case: Case, plan: HtpPlan) -> tuple[HtpPoint, ...]:
        edge = plan.edge(case)
        layers = (HtpPoint(phase=Phase.PREFILL, bucket=bucket) for bucket in edge)
        return (*layers, *plan.chunks(edge[0]), *plan.products(edge[0]))

    def judge(self, case: Case, plan: HtpPlan, measured: Measured) -> Judgement:
        points, bucket = self.points(case, plan), plan.edge(case)[0]
        if reason := refused(points, measured):
            return failed(reason)
        visits = {point: last_visit(measured, point, HtpVisit) for point in points}
        layers = [facts for point, facts in visits.items() if point.part is Part.LAYER]
        product = product_of([visits[point] for point in plan.products(bucket)])
        chunks = chunked(plan, {point: visits[point] for point in plan.chunks(bucket)})
        words = f"{TITLE}: one graph for every length of bucket {bucket}, made in {layers[0].compile_cpu_s:.1f} s"
        if len(layers) > 1:
            words += f"; the next bucket's takes x{layers[1].compile_cpu_s / layers[0].compile_cpu_s:.2f}"
        else:
            words += ", the largest"
        if chunks is not None:
            words += (
                f"; in {chunks.num_chunks} chunks sharing saves {chunks.saved_fraction:.0%} of a layer's "
                f"{chunks.per_chunk_bytes / 1e6:.0f} MB"
            )
        return Judgement(
            verdict=verdict(product.problems if product else (), [words, *([product.words] if product else [])]),
            what=f"prefill graph of {bucket} tokens",
            metrics=(
                bytes_metric("prefill_context_bytes", layers[0].context_bytes),
                *(
                    bytes_metric(name, getattr(chunks, name))
                    for name in ("per_chunk_bytes", "sharing_bytes")
                    if chunks is not None
                ),
                *(product_metrics(product) if product else ()),
                Metric(name="compile_cpu_s", unit="s", value=layers[0].compile_cpu_s, gate="none"),
            ),
            detail=HtpDetail(bucket=bucket, chunks=chunks, product=product),
        )


def chunked(plan: HtpPlan, visits: Graphs) -> ChunksDetail | None:
    """Of a prompt's chunks; None where it has none. Graphs are counted by llm.npu's closed form, of two subgraphs a
    layer that are shared and one that is not."""
    from pytest_npubench.engines.chunk_layout import ChunkLayout
    from pytest_npubench.extensions.compilers.qnn.chunks import CHUNK_TOKENS

    if not visits:
        return None
    alone = [facts for point, facts in visits.items() if point.part is Part.CHUNK]
    shared = [facts for point, facts in visits.items() if point.part is not Part.CHUNK]
    layout = ChunkLayout(
        prompt_tokens=max(point.bucket for point in visits),
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


KIND = MakingKind()
