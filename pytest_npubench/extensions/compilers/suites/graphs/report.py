"""What a campaign of graphs shows: stairs and steps of a phone, or what Qualcomm's compiler made."""

from __future__ import annotations

from pytest_npubench.core.measurement import Phase
from pytest_npubench.extensions.compilers.compiled.runtime import TITLE
from pytest_npubench.extensions.compilers.suites.graphs.htp_graphs import HtpDetail, LayerDetail
from pytest_npubench.reports import build, number_text
from pytest_npubench.reports.page import Chart, Parts, Rounds, Table
from pytest_npubench.reports.plot_parts import axis, log_axis
from pytest_npubench.suites.buckets.kinds.steps import StepsDetail
from pytest_npubench.suites.buckets.profile_detail import ProfileDetail
from pytest_npubench.suites.buckets.report.profile import bucket_charts
from pytest_npubench.suites.buckets.report.steps import steps_chart
from pytest_npubench.verdict.case_record import CaseRecord, Cases

Profiles = list[CaseRecord[HtpDetail]]
NEED = (
    "A layer's graph stands for all layers. Needed: all weights once, what the graphs of this bucket and all smaller "
    "ones hold beside weights, the head, and their caches. The answers are a small decoder's on the emulated NPU."
)
PRODUCT = (
    "Queries of 256 tokens, 8 channels some 42 times as large as the others; what the shadow path adds is computed in "
    "float32 on the processor (llm.npu, section 3.3). An error of numbers, no statement on any model's accuracy."
)
CHUNKS = (
    "A graph for every chunk holds all weights again. Shared: one graph of all but attention, which is the same for "
    "every chunk, and one of each chunk's attention, which has no weights (llm.npu, section 3.2)."
)
COST = "CPU seconds of Qualcomm's compiler on this machine for one layer's graph: what a length without a graph costs."


def parts(cases: Cases, rounds: Rounds) -> Parts:
    if htp := htp_profiles(cases):
        tables = (htp_table(htp), chunk_table(cases), product_table(cases))
        return tuple(build.of_kind("layers", [htp_chart(htp)])), tables, ()
    stairs = build.of_kind("profile", bucket_charts(cases.of("profile", ProfileDetail)))
    return (*stairs, *build.of_kind("steps", [steps_chart(cases.of("steps", StepsDetail))])), (), ()


def lines(cases: Cases) -> list[str]:
    """Of each compiled campaign a line for each bucket."""
    lines: list[str] = []
    for campaign, members in cases.by(lambda record: record.campaign).items():
        if htp := htp_profiles(members):
            lines += htp_lines(campaign, htp)
    return lines


def htp_profiles(cases: Cases) -> Profiles:
    """Of buckets whose graphs were had, the smallest first."""
    profiles = (record for record in cases.of("layers", HtpDetail) if record.detail.graphs)
    return sorted(profiles, key=lambda record: record.detail.bucket or 0)


def htp_lines(campaign: str | None, profiles: Profiles) -> list[str]:
    """Returns a line for the campaign, then one for each bucket."""
    compile_s = sum(graph.compile_cpu_s for record in profiles for graph in _graphs(record).values())
    passing = [record.detail.bucket for record in profiles if not record.judgement.verdict.failing]
    largest = f"buckets up to {passing[-1]} pass" if passing else "no bucket passes"
    lines = [f"{campaign}, {TITLE}: {largest}; compiling a layer in each took {compile_s:.0f} s of a core"]
    for record in profiles:
        parts = [
            f"{phase.value} {graph.context_bytes / 1e6:.1f} MB a layer in {graph.compile_cpu_s:.1f} s"
            for phase, graph in _graphs(record).items()
        ]
        answers = f"answers off by {_answers(record.detail)}"
        lines.append(f"  bucket {record.detail.bucket}: {_memory(record.detail)}; {', '.join(parts)}; {answers}")
    return lines


def htp_table(profiles: Profiles) -> Table | None:
    if not profiles:
        return None
    rows = [(record.detail, phase, graph) for record in profiles for phase, graph in _graphs(record).items()]
    return build.table(
        f"Graphs of one layer, {TITLE}",
        (
            ("bucket", lambda row: str(row[0].bucket)),
            ("step", lambda row: row[1].value),
            ("context binary MB", lambda row: f"{row[2].context_bytes / 1e6:.1f}"),
            ("weights MB", lambda row: f"{row[2].weight_bytes / 1e6:.1f}"),
            ("compiling, CPU s", lambda row: f"{row[2].compile_cpu_s:.1f}"),
            ("optimizing s", lambda row: _seconds(row[2].optimize_s)),
            ("sequencing s", lambda row: _seconds(row[2].sequence_s)),
            ("placing in VTCM s", lambda row: _seconds(row[2].vtcm_s)),
            ("memory needed", lambda row: _memory(row[0])),
            ("answers off by", lambda row: _answers(row[0])),
        ),
        rows,
        note=NEED,
        without_unknown=True,
    )


def chunk_table(cases: Cases) -> Table | None:
    """Prompts in chunks, where any case has them."""
    details = sorted((record.detail for record in cases.of("making", HtpDetail)), key=lambda detail: detail.bucket or 0)
    rows = [(detail.bucket, detail.chunks) for detail in details if detail.chunks is not None]
    if not rows:
        return None
    return build.table(
        f"Prompts in chunks, {TITLE}",
        (
            ("prompt, tokens", lambda row: str(row[0])),
            ("chunks", lambda row: str(row[1].num_chunks)),
            ("a graph each, MB a layer", lambda row: f"{row[1].per_chunk_bytes / 1e6:.1f}"),
            ("shared graphs, MB a layer", lambda row: f"{row[1].sharing_bytes / 1e6:.1f}"),
            ("saved", lambda row: f"{row[1].saved_fraction:.1%}"),
            ("graphs of the decoder", lambda row: f"{row[1].per_chunk_graphs} and {row[1].sharing_graphs}"),
            ("compiling a layer, CPU s", lambda row: f"{row[1].per_chunk_cpu_s:.1f} and {row[1].sharing_cpu_s:.1f}"),
        ),
        rows,
        note=CHUNKS,
    )


def product_table(cases: Cases) -> Table | None:
    """Returns a product in INT8 with outliers, where any case has it."""
    rows = [record.detail.product for record in cases.of("making", HtpDetail) if record.detail.product is not None]
    if not rows:
        return None
    arms = (
        ("fp16", rows[0].fp16_bytes, rows[0].fp16_error),
        ("INT8, scale with outliers", rows[0].int8_bytes, rows[0].max_min_error),
        ("INT8, outliers cut off", rows[0].int8_bytes, rows[0].clip_error),
        ("INT8 and the shadow path", rows[0].int8_bytes, rows[0].shadow_error),
    )
    return build.table(
        f"A product with outliers on the emulated NPU, {TITLE}",
        (
            ("how", lambda row: row[0]),
            ("context binary MB", lambda row: f"{row[1] / 1e6:.1f}"),
            ("off by, of the product", lambda row: f"{row[2]:.2g}"),
        ),
        arms,
        note=PRODUCT,
    )


def htp_chart(profiles: Profiles) -> Chart:
    """What making a graph costs by its length (HeteroInfer, Fig. 8)."""
    buckets = [record.detail.bucket or 0 for record in profiles]
    seconds = {phase: [_graphs(record)[phase].compile_cpu_s for record in profiles] for phase in Phase}
    prefill = seconds[Phase.PREFILL]
    title = f"Making a layer's graph by bucket, {TITLE}"
    return build.chart(
        title,
        f"Making the prefill graph: {prefill[0]:.1f} s for {buckets[0]} tokens, {prefill[-1]:.1f} s for {buckets[-1]}.",
        (COST,),
        [
            build.line(phase.value, buckets, values, "bucket {x}: {y:.3g} s", index=index)
            for index, (phase, values) in enumerate(seconds.items())
        ],
        (log_axis("bucket b, tokens", buckets), axis("CPU seconds", from_zero=True)),
        build.table(
            title,
            (
                ("bucket", lambda row: str(row[0])),
                *((phase.value, lambda row, at=at: f"{row[at]:.1f}") for at, phase in enumerate(Phase, 1)),
            ),
            list(zip(buckets, *seconds.values(), strict=True)),
        ),
    )


def _graphs(record: CaseRecord[HtpDetail]) -> dict[Phase, LayerDetail]:
    graphs = record.detail.graphs or {}
    return {phase: graphs[phase.value] for phase in Phase if phase.value in graphs}


def _memory(detail: HtpDetail) -> str:
    need = f"{(detail.need_bytes or 0) / 1e9:.2f}"
    return f"{need} GB" if detail.room_bytes is None else f"{need} of {detail.room_bytes / 1e9:.2f} GB"


def _answers(detail: HtpDetail) -> str:
    if detail.answer_error is None:
        return number_text.UNKNOWN
    limit = "" if detail.answer_limit is None else f" of {detail.answer_limit:.2g} allowed"
    return f"{detail.answer_error:.2g}{limit}"


def _seconds(value: float | None) -> str:
    return number_text.UNKNOWN if value is None else f"{value:.2f}"
