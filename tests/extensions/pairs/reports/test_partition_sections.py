"""What the report says of the partition suite, from records whose numbers were written down by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from reports.page import Element, check_svg, figures, grids, page_of, rows, table_of
from reports.served import policy_record

from pytest_npubench.extensions.pairs.suites.partition.kinds.bandwidth import BandwidthDetail
from pytest_npubench.extensions.pairs.suites.partition.kinds.bucket_edges import BucketEdgesDetail
from pytest_npubench.extensions.pairs.suites.partition.kinds.decoder_layer import DecoderLayerDetail
from pytest_npubench.extensions.pairs.suites.partition.kinds.gpu_linear import GpuLinearDetail
from pytest_npubench.extensions.pairs.suites.partition.kinds.graph_generation import GraphGenerationDetail
from pytest_npubench.extensions.pairs.suites.partition.kinds.npu_order import NpuOrderDetail
from pytest_npubench.extensions.pairs.suites.partition.kinds.npu_shape import NpuShapeDetail
from pytest_npubench.extensions.pairs.suites.partition.kinds.npu_stage import NpuStageDetail
from pytest_npubench.extensions.pairs.suites.partition.kinds.overlap import OverlapDetail, PhaseDetail
from pytest_npubench.extensions.pairs.suites.partition.kinds.solver import SolverDetail
from pytest_npubench.extensions.pairs.suites.partition.kinds.solver_regret import SolverRegretDetail
from pytest_npubench.extensions.pairs.suites.partition.kinds.sync_cost import MechanismDetail, SyncCostDetail
from pytest_npubench.extensions.pairs.suites.partition.report.section import lines, parts
from pytest_npubench.reports import svg
from pytest_npubench.reports.terminal import render_table, summary_lines
from pytest_npubench.suites import shown
from pytest_npubench.verdict.case_record import Cases
from pytest_npubench.verdict.result import Metric

from .paired import damaged, page_with_rounds, pair_record, section_of, unmeasured

Json = dict[str, Any]


CAMPAIGN = "cpu-llama-8b-div4-partition"


def split_case(kind: str, detail: object, *axes: tuple[str, int | str], **judged: Any) -> Json:
    return pair_record("partition", kind, "llama-8b-div4", detail, axes=axes, campaign=CAMPAIGN, **judged)


def operator_case(kind: str, operator: str, detail: object) -> Json:
    return split_case(kind, detail, ("operator", operator))


def solver_case(operator: str, tokens: int, predicted_s: float, detail: SolverDetail) -> Json:
    return split_case(
        "solver",
        detail,
        ("operator", operator),
        ("tokens", tokens),
        measured_s=detail.decided_s,
        predicted_s=predicted_s,
        error=(predicted_s - detail.decided_s) / detail.decided_s,
    )


def linear(threshold_tokens: float | None) -> GpuLinearDetail:
    return GpuLinearDetail(
        tokens=(1, 2, 4, 8, 16),
        seconds=(0.001, 0.001, 0.001, 0.002, 0.004),
        flops_per_s=(1e9, 2e9, 4e9, 4e9, 4e9),
        threshold_tokens=threshold_tokens,
        floor_s=0.001,
        slope_s_per_token=0.00025,
    )


def stages(stage_tokens: int | None) -> NpuStageDetail:
    return NpuStageDetail(
        tokens=(16, 32, 48, 64), seconds=(0.001, 0.001, 0.002, 0.002), stage_tokens=stage_tokens, step_s=0.001
    )


def graphs(slope: float | None) -> GraphGenerationDetail:
    return GraphGenerationDetail(
        tokens=(17, 67, 135, 261), seconds=(0.02, 0.021, 0.03, 0.041), base_s=0.018, slope_s_per_output=slope
    )


def order(interval: tuple[float, float] | None) -> NpuOrderDetail:
    return NpuOrderDetail(
        order_ratio=6.02,
        order_ratio_interval=interval,
        weight_first_s=(0.001, 0.003, 0.002),
        activation_first_s=(0.012, 0.014),
    )


def layer(tokens: int, context: int) -> DecoderLayerDetail:
    return DecoderLayerDetail(
        tokens=tokens,
        context=context,
        decided_s=0.05,
        gpu_s=0.06,
        npu_s=0.08,
        whole_s=0.055,
        sync_s=0.0025,
        speedup=1.2,
        whole_speedup=1.09,
        weights="cold" if context else "warm",
    )


def phase(tokens: int, fast_speedup: float) -> PhaseDetail:
    return PhaseDetail(
        fast_s=0.01,
        slow_s=0.02,
        queued_s=0.009,
        fast_exposed_s=1.5e-5,
        slow_exposed_s=0.0012,
        num_operators=8,
        operator=(256, 1024, tokens),
        fast_speedup=fast_speedup,
    )


def regrets(median: float = 0.0213, largest_speedup: float | None = 1.387) -> SolverRegretDetail:
    return SolverRegretDetail(
        num_shapes=10,
        median_regret=median,
        p90_regret=0.09,
        median_prediction_error=0.045,
        p90_prediction_error=0.2,
        largest_speedup=largest_speedup,
        shapes=(("ffn_down", 1, 0.1, None),),
    )


EDGES = BucketEdgesDetail(
    lengths=(
        {"tokens": 32, "decided_s": 0.002, "padding_s": 0.002, "pipe_s": 0.002, "chunked_s": 0.003},
        {
            "tokens": 35,
            "decided_s": 0.002,
            "padding_s": 0.004,
            "pipe_s": 0.003,
            "chunked_s": 0.003,
            "online prepare_s": 0.5,
        },
    ),
    speedups={"padding": 1.5, "pipe": 1.25, "chunked": 1.5},
)


def partition_records() -> list[Json]:
    """One case or more of every kind."""
    return [
        operator_case("gpu_linear", "attention_q", linear(None)),
        operator_case("gpu_linear", "ffn_down", linear(4.0)),
        operator_case("npu_stage", "attention_q", stages(None)),
        operator_case("npu_stage", "ffn_down", stages(32)),
        operator_case("graph_generation", "attention_q", graphs(None)),
        operator_case("graph_generation", "ffn_down", graphs(8e-8)),
        operator_case("npu_order", "attention_q", order((5.5, 6.4))),
        operator_case("npu_order", "ffn_down", order(None)),
        operator_case(
            "npu_shape",
            "ffn_down",
            NpuShapeDetail(shape_ratio=0.98, shape_ratio_interval=None, tall_s=(0.005,), wide_s=(0.0049,)),
        ),
        split_case(
            "bandwidth",
            BandwidthDetail(
                gpu_alone_bytes_per_s=(19e9, 20e9, 22e9),
                npu_alone_bytes_per_s=(21e9,),
                together_bytes_per_s=(25e9, 24e9),
                bandwidth_gain=1.17,
                bandwidth_gain_interval=None,
            ),
            metrics=(Metric(name="gpu_alone_bytes_per_s", unit="B/s", value=20e9, better="higher", samples=(20e9,)),),
        ),
        split_case(
            "sync_cost",
            SyncCostDetail(
                mechanisms=(
                    MechanismDetail(mechanism="flag", p50_s=8e-7, p99_s=1.2e-6, num_trips=400),
                    MechanismDetail(mechanism="pipe", p50_s=9.6e-5, p99_s=None, num_trips=40),
                ),
                fast_speedup=1.37,
                slow_speedup=0.5,
                operator=(256, 1024, 1),
            ),
        ),
        split_case("overlap", OverlapDetail(decode=phase(1, 2.0), prefill=phase(32, 1.25))),
        solver_case(
            "attention_q",
            40,
            0.0021,
            SolverDetail(
                operator="attention_q",
                shape=(7168, 7168, 40),
                strategy="hybrid",
                split="rows 4:1 (5728:1440), npu padded to 64",
                best_strategy="gpu_only",
                best_split="all on gpu",
                decided_s=0.0020,
                best_s=0.00196,
                single_s=0.003,
                regret=0.0204,
                speedup=1.5,
                gpu_share=0.8,
                weights="warm",
                warm_decided_s=None,
                warm_speedup=None,
            ),
        ),
        solver_case(
            "ffn_down",
            1,
            0.0009,
            SolverDetail(
                operator="ffn_down",
                shape=(1024, 3584, 1),
                strategy="gpu_only",
                split="all on gpu",
                best_strategy="weight_centric",
                best_split="rows 1:1 (512:512)",
                decided_s=0.001,
                best_s=0.00106,
                single_s=None,
                regret=-0.0566,
                speedup=None,
                gpu_share=1.0,
                weights="cold",
                warm_decided_s=0.0007,
                warm_speedup=1.31,
            ),
        ),
        unmeasured(split_case("solver", {}, ("operator", "ffn_down"), ("tokens", 40))),
        split_case(
            "solver_regret", regrets(), metrics=(Metric(name="median_regret", unit="", value=0.0213, gate="none"),)
        ),
        operator_case("bucket_edges", "ffn_down", EDGES),
        split_case("decoder_layer", layer(256, 0), ("phase", "prefill")),
        split_case("decoder_layer", layer(1, 256), ("phase", "decode")),
    ]


@pytest.fixture
def page() -> Element:
    return page_of(partition_records())


def test_every_kind_is_shown_and_the_charts_are_whole(page: Element) -> None:
    found = figures(page)
    assert list(found) == [
        "Times of the solver's choices: attention_q",
        "Times of the solver's choices: ffn_down",
        "GPU linear: time by tokens",
        "GPU linear: rate by tokens",
        "NPU stage: time by tokens",
        "Graph generation: time by tokens",
        "NPU order: weight first by place",
        "NPU order: activation first by place",
        "NPU shape, ffn_down: tall and wide by place",
        "Bandwidth: GPU alone by place",
        "Bandwidth: NPU alone by place",
        "Bandwidth: together by place",
    ]
    maps = grids(page)
    assert list(maps) == [
        "What the solver chose",
        "Speed of the unit of dynamic shapes by shape",
        "Speed of the static unit by shape",
        "Order and shape on the static unit",
    ]
    for figure in (*found.values(), *maps.values()):
        check_svg(figure)
    assert "nan" not in page.all("section")[2].text.casefold().split()


def test_a_section_of_its_own_beside_other_suites(page: Element) -> None:
    both = page_of([policy_record("layered"), *partition_records()])
    titles = [heading.text for heading in both.all("h2")[2:]]
    assert titles == ["cpu: small-moe, scheduling on cpu:0", "cpu: llama-8b-div4, partition on cpu:0"]
    scheduling, partition = both.all("section")[2:]
    assert "GPU-1" not in scheduling.text
    for word in ("LENS profiling", "TTFT", "buckets"):  # a kind of the suite is bucket_edges
        assert word not in partition.text, word


def test_the_line_stands_in_the_page_and_in_the_terminal(page: Element) -> None:
    line = "regret over 10 shapes median 2.1 %, p90 9 %, prediction error median 4.5 %, largest speed-up 1.39"
    assert lines(Cases.read(partition_records())) == [f"partition: {line} (llama-8b-div4)"]
    assert f"Partition: {line} (llama-8b-div4)." in page.all("section")[2].text
    last = summary_lines(partition_records(), shown)
    assert last[:2] == [f"partition: {line.rpartition(',')[0]},", "  largest speed-up 1.39 (llama-8b-div4)"]
    assert max(map(len, last)) <= 100
    text = render_table(partition_records(), width=100, color=False)
    assert all(len(row.rstrip()) <= 100 for row in text.splitlines())


@pytest.mark.parametrize(
    ("median", "shown"), [(0.0, "0 %"), (-0.0004, "0 %"), (-0.0566, "-5.7 %"), (0.0996, "10 %"), (10.2, "1,020 %")]
)
def test_regrets_in_words(median: float, shown: str) -> None:
    record = split_case("solver_regret", regrets(median, largest_speedup=None))
    told = f"regret over 10 shapes median {shown}, p90 9 %, prediction error median 4.5 % (llama-8b-div4)"
    assert lines(Cases.read([record])) == [f"partition: {told}"]
    assert lines(Cases.read([{**record, "device": "cuda:1"}]))[0].endswith("(llama-8b-div4, cuda:1)")
    assert lines(Cases.read([unmeasured(record)])) == []


def test_fractions_and_streams_in_the_table_of_all_metrics(page: Element) -> None:
    table = table_of(page, "All metrics")
    assert [row[1:3] for row in table[1:]] == [["gpu_alone_bytes_per_s", "20 GB/s"], ["median_regret", "2.13 %"]]


def test_cases_that_measured_nothing_have_no_parts() -> None:
    records = [unmeasured(record) for record in partition_records()]
    page = page_of(records)
    assert not page.all("figure")
    assert len(page.all("table")) == 1
    assert page.text.count("the unit was lost") == len(records) + 1  # once at the head of the page


def test_rounds_show_drift_of_each_unit_alone_and_failures_once(tmp_path: Path) -> None:
    alone, both = "64x32x8/gpu0:64x0:8/8", "64x32x8/gpu0:32x0:8/8+npu32:32x0:8/8"
    online, reason = "64x32x8/npu0:64x0:8/8/online", "no memory for a graph"
    names = [f"{point}/total_s" for point in (alone, alone.replace("gpu", "npu"), both, online)]
    rounds = [{**{name: [seconds] for name in names}, f"{alone}/gpu_s": [1.0]} for seconds in (0.012, 0.009, 0.009)]
    failures = {"decision/64x32x8": reason}
    page = page_with_rounds(tmp_path, partition_records(), {CAMPAIGN: rounds}, failures=failures)
    traces = {trace.title: trace.y for trace in figures(page)["Drift from round to round"].series if trace.title}
    assert traces == {
        "gpu/64x32x8 as 0:8/8": pytest.approx([1.2, 0.9, 0.9]),
        "npu/64x32x8 as 0:8/8": pytest.approx([1.2, 0.9, 0.9]),
    }
    assert table_of(page, "Points that failed")[1:] == [["decision/64x32x8", "0, 1, 2", reason]]
    assert "3 rounds in 30.0 s." in page.text


def test_a_case_that_measured_nothing_is_told_by_its_kind(page: Element) -> None:
    record = {**unmeasured(operator_case("bucket_edges", "ffn_down", EDGES)), "what": ""}
    assert [row[1] for row in rows(page_of([record]).all("table")[0])[1:]] == ["bucket edges"]
    assert "bucket edges" in render_table([record], width=160, color=False, verbose=True)
    assert [row[1] for row in rows(page_of([{**record, "case": "nonsense"}]).all("table")[0])[1:]] == [""]


def test_names_stay_text() -> None:
    nasty = "<b onclick='x()'>b</b>"
    records = [{**record, "axes": {**record["axes"], "operator": nasty}} for record in partition_records()]
    assert not page_of(records).all("b")
    for chart in section_of(parts, records)[0]:
        assert "<b" not in svg.draw(chart.figure, label="a chart")


def test_a_record_of_another_version_has_no_picture_and_is_named() -> None:
    """Whatever figure of its detail is none, and whatever it lacks."""
    record = next(record for record in partition_records() if "/solver/" in record["case"])
    lacking = [
        {**record, "detail": {key: value for key, value in record["detail"].items() if key != name}}
        for name in record["detail"]
    ]
    for changed in (*damaged(record), *lacking):
        charts, _, (said,) = section_of(parts, [changed])
        assert said.startswith(f"{record['id']} is not shown: its record is of another version"), changed["detail"]
        assert not charts
