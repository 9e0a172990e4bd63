"""What the report says of the scheduling suite, from records whose numbers were written down by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from pytest_npubench.reports import definitions, svg
from pytest_npubench.reports.plot_parts import DrawnSeries
from pytest_npubench.store.journal import Journal
from pytest_npubench.suites.scheduling.figures import host_words
from pytest_npubench.suites.scheduling.kinds.policy import PolicyDetail
from pytest_npubench.suites.scheduling.points import figures_in
from pytest_npubench.suites.scheduling.report.policy import served_loads
from pytest_npubench.suites.scheduling.report.section import parts
from pytest_npubench.verdict.case_record import Cases

from .conftest import Rendered
from .page import Element, check_svg, figures, page_of, rows, table_of, whiskers
from .served import LAYERED, WORKLOAD, policy_detail, policy_record, round_points, served_journal, served_records
from .test_report_gaps import JUNK_CHANGES, check_report_of_junk, junk_in_any_place

LOAD = "layered-arxiv-div32 at 0.853 req/s"
POLICIES = (
    f"Policies under {LOAD}; SLO: TTFT <= 1,200 ms and every TBT <= 62.5 ms; "
    "rate and limits frozen on 2026-07-04 in S; wall clock; 3 blocks"
)
PAIR = ("layered", "chunked")
CHARTS = {
    "Mean TTFT by policy",
    "Mean TBT by policy",
    "SLO attainment by rate, layered-arxiv-div32",
    "Chunk sweep: expert load by chunk",
    "Chunk sweep: measured by chunk",
    "Expert coverage: coverage by batch",
    "Expert coverage: measured by batch",
    "Group sweep, layered-arxiv-div32, u0.7: TTFT mean and worst TBT by groups",
    "Timeline, layered-arxiv-div32, u0.7: layered and chunked by place",
    "Drift from round to round",
}


@pytest.fixture
def served(tmp_path: Path) -> tuple[list[dict[str, Any]], Journal, Element]:
    records, journal = served_journal(tmp_path / "journal.jsonl")
    return records, journal, page_of(records, journal)


@pytest.fixture
def page(served: tuple[list[dict[str, Any]], Journal, Element]) -> Element:
    return served[2]


def test_every_kind_has_its_chart_and_is_drawn_whole(page: Element) -> None:
    found = figures(page)
    assert found.keys() == CHARTS
    for figure in found.values():
        check_svg(figure)
    for figure in page.all("figure"):
        assert figure.one("figcaption").text
        assert len(figure.one("table").all("tr")) > 1


def test_a_section_a_model_without_what_buckets_have(page: Element) -> None:
    assert [heading.text for heading in page.all("h2")[2:]] == [
        "cpu: small-moe, scheduling on cpu:0",
        "cpu: small-dense, scheduling on cpu:0",
    ]
    for word in ("bucket", "padding", "LENS profiling", "Mean prediction error", "callable of"):
        assert not any(word in section.text for section in page.all("section")[2:]), word
    moe, dense = page.all("section")[2:]
    assert (
        "Layered / chunked: expert bytes -38 %, mean TTFT -45 %, mean TBT -17 %, mean E2E -39 %, at 0.853 req/s "
        "(layered-arxiv-div32, small-moe, geometric mean of 3 blocks). 3 rounds in 30.0 s." in moe.text
    )
    header = page.one("header").text
    assert "Layered / chunked: expert bytes -38 %, mean TTFT -45 %, mean TBT -17 %" in header
    assert "mean E2E" not in header, "an answer is a sentence"
    assert "Dense control, layered / chunked: mean TTFT +12 %, mean TBT +0 %, mean E2E +10 %" in dense.text


def test_the_table_of_policies_has_every_figure_with_its_meaning(page: Element) -> None:
    header, *body = table_of(page, POLICIES)
    assert header == ["figure", "chunked", "layered", "n", "definition"]
    cells = {row[0]: row[1:] for row in body}
    assert cells["SLO attainment, %"][0] == "87.5 (78.75 to 96.25)"
    assert cells["SLO attainment, %"][2:] == ["24", "what slo_attainment means"]
    assert [cells[f"{name} attainment, %"][0][:2] for name in ("TTFT", "TBT")] == ["90", "95"]
    assert cells["TBT std, pooled, ms"][:2] == ["11", "9"]
    assert cells["preemptions"][:2] == ["3", "0"]
    assert cells["TBT std, per request, ms"][:2] == ["10.1", "8.1"]
    assert cells["Jain's index"][:2] == ["0.809", "0.85"]
    assert cells["mean decode batch, requests"][:2] == ["3.25", "2.5"]
    assert cells["expert bytes per request, GB"][:2] == ["2.5", "1.55"]
    assert cells["energy per output token, mJ"] == [
        "unavailable",
        "unavailable",
        "0",
        "energy of the run / output tokens; no energy counter was read",
    ]
    assert len(body) == 11  # energy per prompt and output token is in neither case; latencies have their own table
    assert "Settings: chunked: chunk_size_tokens = 64; layered: tokens_per_iteration = 64, merge_cap" in page.text


def test_the_hosts_part_stands_beside_tbt() -> None:
    detail = policy_detail("chunked")
    tbt = replace(detail.figures["tbt_mean_s"], value=0.0168)
    measured = {**detail.figures, "tbt_mean_s": tbt, "tbt_host_mean_s": replace(tbt, value=0.0041, interval=None)}
    assert host_words(measured) == "4.1 of 16.8 ms of a TBT are the host's"
    assert host_words({**measured, "tbt_host_mean_s": replace(tbt, value=None, note="unknown")}) == ""
    records = [policy_record("chunked", detail=replace(detail, figures=measured))]
    page = page_of(records)
    row = next(row for row in table_of(page, POLICIES) if row[0].startswith("the host"))
    assert row[:2] == ["the host's part of mean TBT, ms", "4.1"]
    unknown = replace(detail, figures={**measured, "tbt_host_mean_s": replace(tbt, value=None, note="unknown")})
    page = page_of([policy_record("chunked", detail=unknown)])
    assert not any("host" in row[0] for row in table_of(page, POLICIES))


def test_policies_that_rest_on_different_numbers_say_so() -> None:
    static = policy_detail("static", 20)
    noted = replace(static.figures["ttft_mean_s"], note="4 of 24 arrived requests are not counted: no token")
    detail = replace(static, figures={**static.figures, "ttft_mean_s": noted})
    records = [policy_record("chunked", 30), policy_record("layered", 20), policy_record("static", detail=detail)]
    page = page_of(records)
    rows_of = {(row[0], row[1]): row for row in table_of(page, f"Latencies under {LOAD}")}
    assert [rows_of["TTFT", policy][6] for policy in ("chunked", "layered", "static")] == ["30", "20", "20"]
    assert rows_of["TTFT", "static"][7] == (
        "mean: 4 of 24 arrived requests are not counted: no token; p99: the maximum: fewer than 100 samples"
    )
    row = next(row for row in table_of(page, POLICIES) if row[0] == "SLO attainment, %")
    assert row[4] == "30 / 20"


def test_bars_are_the_means_with_their_intervals(page: Element) -> None:
    (bars,) = figures(page)["Mean TTFT by policy"].series
    assert bars.y == ["chunked", "layered"]
    assert bars.x == pytest.approx([400, 200])
    assert whiskers(bars.x, bars.x_ends) == [pytest.approx((40, 40)), pytest.approx((20, 20))]
    (bars,) = figures(page)["Mean TBT by policy"].series
    assert bars.x == pytest.approx([30, 25])
    assert table_of(page, "Mean TBT by policy")[2] == ["layered", LOAD, "25", "22.5 to 27.5", "24"]


def test_two_loads_are_two_tables_and_two_rows_of_bars() -> None:
    faster = policy_record(
        "chunked",
        axes=(("policy", "chunked"), ("workload", WORKLOAD), ("rate", "u0.9")),
        detail=replace(policy_detail("chunked"), rate_per_s=1.1),
    )
    cases = Cases.read([policy_record("chunked"), policy_record("layered"), faster])
    first, second = served_loads(cases.of("policy", PolicyDetail))
    assert (first.name, second.name) == (LOAD, "layered-arxiv-div32 at 1.1 req/s")
    charts = {chart.title: chart for chart in parts(cases, ())[0]}
    one, other = charts["Mean TTFT by policy"].figure.series
    assert (one.name, one.y) == (LOAD, ["chunked", "layered"])
    assert (other.name, other.y) == ("layered-arxiv-div32 at 1.1 req/s", ["chunked"])
    assert (one.color, one.pattern) != (other.color, other.pattern)


def test_attainment_by_rate(page: Element) -> None:
    title = "SLO attainment by rate, layered-arxiv-div32"
    layered, chunked, *split, first, second = figures(page)[title].series
    marks = [first, second]
    assert [(mark.name, mark.x, mark.y) for mark in marks] == [
        ("layered, capacity", [1.5], [90.0]),
        ("chunked, capacity", [1.2], [90.0]),
    ]
    assert whiskers(marks[0].x, marks[0].x_ends) == [pytest.approx((0.1, 0.1))]
    assert not marks[1].x_ends  # its interval is not known
    assert (layered.name, chunked.name) == ("layered", "chunked")
    assert layered.x == chunked.x == (0.8, 1.6)
    assert layered.y == pytest.approx([100, 75])
    assert chunked.y == pytest.approx([95, 50])
    assert {one.name: list(one.y) for one in split} == {
        "layered, TTFT alone": pytest.approx([100, 80]),
        "layered, TBT alone": pytest.approx([100, 90]),
        "chunked, TTFT alone": pytest.approx([100, 50]),
        "chunked, TBT alone": pytest.approx([95, 100]),
    }
    assert all(one.width < layered.width and one.dash for one in split)
    shown_as = {(one.dash, one.symbol) for one in (layered, chunked, *split)}
    assert len(shown_as) == 6  # without its colour each line is still another
    assert figures(page)[title].horizontals == (90,)
    parts = ("TTFT and TBT", "TTFT", "TBT")
    assert table_of(page, title) == [
        ["requests/s", "times the load's rate", *(f"{policy}, {part} %" for policy in PAIR for part in parts)],
        ["0.8", "0.8", "100.00", "100.00", "100.00", "95.00", "100.00", "95.00"],
        ["1.6", "1.2", "75.00", "80.00", "90.00", "50.00", "50.00", "100.00"],
    ]
    assert "layered / chunked 1.25 (95 % interval 1.1 to 1.4)" in page.text
    assert table_of(page, "Capacity: layered-arxiv-div32") == [
        ["policy", "capacity at 90 % attainment, req/s", "95 % interval", "why"],
        ["layered", "1.5", "1.4 to 1.6", ""],
        ["chunked", "1.2", "–", ""],
        ["layered / chunked", "1.25", "1.1 to 1.4", ""],
    ]


def test_latencies_have_mean_p50_p95_and_p99(page: Element) -> None:
    rows = {(row[0], row[1]): row[2:] for row in table_of(page, f"Latencies under {LOAD}")}
    assert rows["latency, ms", "policy"] == ["mean", "p50", "p95", "p99", "n", "rests on"]
    assert rows["TTFT", "chunked"] == [
        "400 (360 to 440)",
        "350 (315 to 385)",
        "1,200 (1,080 to 1,320)",
        "1,500 (1,350 to 1,650)",
        "24",
        "p99: the maximum: fewer than 100 samples",
    ]
    assert rows["E2E", "layered"][1:4] == ["–", "–", "–"]


def test_names_of_metrics_in_heads_and_on_axes_say_what_they_mean(page: Element) -> None:
    heads = {cell.text: cell.attributes for cell in page.all("th") if cell.attributes.get("title")}
    assert "queueing included" in heads["TTFT"]["title"]
    assert "each gap" in heads["layered, TBT %"]["title"]
    data = [cell.attributes for table in page.all("table")[1:] for cell in table.all("th")]
    assert all(cell.get("tabindex") == "0" for cell in data if "title" in cell)  # reached by keys
    assert not any("tabindex" in cell for cell in data if "title" not in cell)
    axis_of = {text.children[0]: text for text in page.all("text") if text.attributes.get("class") == "name"}
    assert axis_of["attainment, %"].one("title").text == definitions.METRICS["attainment"]
    assert not axis_of["groups"].all("title")


def test_drift_follows_ttft_and_repeated_work_and_nothing_else(page: Element) -> None:
    traces = {trace.title or trace.name: trace for trace in _drift(page)}
    assert len(traces) == 4
    assert list(traces["decode/8/16"].y) == [1, 1, 1]
    for name in traces.keys() - {"decode/8/16"}:
        assert traces[name].y == pytest.approx([1.2, 0.9, 0.9]), name
    assert {trace.name for trace in traces.values() if trace.title} == {
        "layered points",
        "chunked points",
        "decode points",
    }
    assert len(svg.draw(figures(page)["Drift from round to round"], label="drift")) < 8000


def _drift(page: Element) -> tuple[DrawnSeries, ...]:
    return figures(page)["Drift from round to round"].series


def test_a_rounds_figures_are_mean_ttft_by_policy_and_load() -> None:
    assert figures_in(round_points(1.0)) == {
        "decode/8/16": (0.02, 0.02),
        "layered/layered-arxiv-div32@u0.7 (tokens_per_iteration=64,merge_cap_tokens=1024)": (pytest.approx(0.3),),
        "chunked/layered-arxiv-div32@u0.7 (chunk_size_tokens=64)": (pytest.approx(0.6),),
    }


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("request.output_tokens", [3, 2]),
        ("request.output_tokens", [0, 4]),
        ("request.output_tokens", [4]),
        ("request.arrival_s", [0.0]),
        ("request.token_times_s", [0.3]),
        ("aborted/the engine died", [1]),
    ],
)
def test_columns_that_do_not_fit_together_and_failed_blocks_are_left_out(column: str, values: list[float]) -> None:
    found = figures_in({**round_points(1.0), f"{LAYERED}/{column}": values})
    assert not any(own for name, own in found.items() if name.startswith("layered"))
    assert [len(own) for name, own in found.items() if name.startswith("chunked")] == [1]


def test_buckets_and_scheduling_of_one_model_never_mix(run: Rendered) -> None:
    served = policy_record("layered")
    of_buckets = next(record for record in run.records if "/profile/" in record["case"])
    served |= {name: of_buckets[name] for name in ("hardware", "model", "batch_size", "device", "fingerprint")}
    page = page_of([*run.records, served], run.journal)
    titles = [heading.text for heading in page.all("h2")[2:]]
    assert titles == ["cpu: tiny-llama, batch 1 on cuda:0", "cpu: tiny-llama, scheduling on cuda:0"]
    buckets, scheduling = page.all("section")[2:]
    assert {figure.all("h3")[0].text for figure in scheduling.all("figure")} == {
        "Mean TTFT by policy",
        "Mean TBT by policy",
    }
    assert "The journal holds no rounds of this campaign." in scheduling.text
    assert not any("by policy" in figure.text for figure in buckets.all("figure"))
    assert "policy" not in " ".join(table.text for table in buckets.all("table"))


def test_cases_without_what_a_chart_needs_have_none() -> None:
    records = [{**record, "detail": {}, "metrics": {}, "measured_s": None} for record in served_records()]
    page = page_of(records)
    assert not page.all("figure")
    assert len(page.all("table")) == 1
    assert len(rows(page.all("table")[0])) == len(records) + 1


def test_names_of_policies_and_workloads_stay_text() -> None:
    nasty = "<b onclick='x()'>b</b>"
    records = served_records()
    for record in records:
        record["axes"] |= {"workload": nasty, "policy": nasty}
        record["detail"] |= {"policy": nasty, "workload": nasty}
    page = page_of(records)
    assert not page.all("b")
    for chart in parts(Cases.read(records), ())[0]:
        assert "<b" not in svg.draw(chart.figure, label="a chart")


@junk_in_any_place
@given(changes=JUNK_CHANGES)
def test_junk_in_any_place_of_a_record_does_not_stop_the_report(changes: list[tuple[int, int, object]]) -> None:
    check_report_of_junk(served_records(), changes)
