"""What the report says of the offload suite, from records whose numbers were written down by hand."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plotly.graph_objects import Figure

from pytest_npubench.reports import html
from pytest_npubench.reports.terminal import summary_lines
from pytest_npubench.store.journal import Journal, read_journal
from pytest_npubench.suites import shown
from pytest_npubench.suites.offload.report.charts import offload_charts
from pytest_npubench.suites.offload.report.lines import offload_lines

from .journals import make_fingerprint, open_journal
from .page import Element, figures, read, rows, table_of
from .served import case_record
from .test_report_gaps import JUNK, _places, check_rows, readable

NO_JOURNAL = Journal(path=Path("j"), sessions=(), records=(), torn=())
SPACE = "\u00a0"
Json = dict[str, Any]
pytestmark = pytest.mark.usefixtures("small")


MEASURED_FOR = {"pruning": "shadow_outlier", "contention": "out_of_order"}
"""Cases that the campaign of another experiment measures."""


def offload_case(kind: str, **detail: Any) -> Json:
    name = "cpu-seeded-decoder-b1"
    campaign = f"cpu-offload-{MEASURED_FOR.get(kind, kind)}"
    known = {"axes": {}, "batch_size": 1, "case": f"offload/{kind}/{name}", "id": name, "campaign": campaign}
    return case_record(kind, model="seeded-decoder", detail=detail, **known)


def arm(name: str, setting: str, total_s: float, over: float | None = None, **metrics: Any) -> Json:
    interval = metrics.pop("interval", None)
    return {"arm": name, "setting": setting, "total_s": total_s, **metrics, "over": over, "over_interval": interval}


def effect(ratio: float, *factors: str, ends: tuple[float, float] | None = None) -> Json:
    low, high = ends or (None, None)
    return {"factors": list(factors), "ratio": ratio, "low": low, "high": high, "num_rounds": 6}


def shadow_arms() -> list[Json]:
    known = {"sync_fraction": 0.25, "num_outlier_channels": 9}
    return [
        arm("fp32", "0 outliers", 0.004, relative_error=4e-7, **known),
        arm("max_min", "0 outliers", 0.002, 0.5, interval=[0.45, 0.55], relative_error=0.016, **known),
        arm("parallel_fast", "0 outliers", 0.001, 0.25, interval=[None, None], relative_error=0.015, **known),
        arm("fp32", "8 outliers", 0.004, relative_error=4e-7, **known),
        arm("max_min", "8 outliers", 0.002, 0.5, relative_error=0.08, **known),
        arm("parallel_fast", "8 outliers", 0.0015, 0.375, relative_error=0.004, **{**known, "sync_fraction": 0.0765}),
    ]


def replay_arms(*contention: str) -> list[Json]:
    ratios = {"in_order": 1.22, "fifo": None, "contribution": 0.93}
    return [
        arm(
            policy,
            setting,
            0.02 * (ratio or 1.0),
            None if ratio is None else ratio + 0.1 * place,
            interval=[0.9, 0.96] if policy == "contribution" and not place else None,
            bubble_fraction=0.4,
            predicted_s=0.019,
            stalled_s=0.0,
        )
        for place, setting in enumerate(contention)
        for policy, ratio in ratios.items()
    ]


def offload_records() -> list[Json]:
    """One case of every kind."""
    graphs = {"num_graphs": 18, "weight_bytes": 1574912, "executable_bytes": 1919826, "compile_s": 2.26}
    computed = {"computed_tokens": 256, "relative_error": 3.54e-7}
    outcome = {"policy": "fifo", "num_chunks": 2, "makespan_s": 0.57, "bubble_fraction": 0.0723, "over_fifo": 1.0}
    late = {**outcome, "policy": "contribution", "num_chunks": 8, "bubble_fraction": 0.0045, "over_fifo": 0.905}
    pruned = {"pruned_fraction": 0.85, "work_fraction": 0.111, "relative_error": 0.793}
    kept = {"pruned_fraction": 0.0, "work_fraction": 1.0, "relative_error": 0.00385}
    moved = {"moved_fraction": 0.5, "miss_fraction": 0.556, "dropped_error": 0.652, "fetched_error": 0.00385}
    cell = {"num_graphs": 32, "weight_bytes": 1.5e6, "compile_s": 2.0, "bubble_fraction": 0.5, "relative_error": 0.337}
    return [
        offload_case(
            "chunk_sharing",
            arms=[
                arm("whole", "256 tokens", 0.0072, **graphs, **computed),
                arm("sharing", "256 tokens", 0.0137, 1.9, interval=[1.8, 2.05], **graphs, **computed),
            ],
            saved_fraction={"128": 0.5, "256": 0.75},
            shared_subgraphs={"128": [10, 12], "256": [10, 12]},
        ),
        offload_case("shadow_outlier", arms=shadow_arms(), crossover_fraction=0.125, error_gain={"8": 20.0}),
        offload_case("pruning", channels=[kept, pruned], layers=[kept], missed=[{**moved, "fetched_bytes": 20480}]),
        offload_case("out_of_order", arms=replay_arms("calm"), simulated=[outcome, late], published="llm.npu, 37 %"),
        offload_case("contention", arms=replay_arms("calm", "hog")),
        offload_case(
            "factorial",
            cells=[
                {"cell": "none", "over_none": 1.0, "total_s": 0.02, **cell},
                {"cell": "sharing+shadow", "over_none": 0.8, "total_s": 0.016, **cell},
            ],
            effects={
                "time": [
                    effect(0.956, "sharing", ends=(0.9, 1.01)),
                    effect(1.174, "shadow"),
                    effect(0.636, "out_of_order"),
                    effect(0.963, "sharing", "shadow"),
                ],
                "error": [effect(1.0, "sharing"), effect(0.179, "shadow")],
                "weight_bytes": [effect(0.25, "sharing", ends=(0.25, 0.25))],
            },
        ),
    ]


def page_of(records: list[Json], journal: Journal = NO_JOURNAL) -> Element:
    return read(html.render_html(records, journal, shown))


@pytest.fixture
def page(small: None) -> Element:
    return page_of(offload_records())


def body(page: Element, caption: str) -> list[list[str]]:
    return [[cell.replace(SPACE, " ") for cell in row] for row in table_of(page, caption)]


def caption_of(page: Element, title: str) -> str:
    return next(f.one("figcaption").text for f in page.all("figure") if f.all("h3")[0].text == title)


def test_every_kind_is_shown_and_plotly_takes_the_charts(page: Element) -> None:
    found = figures(page)
    assert list(found) == [
        "Shadow outliers: error",
        "Shadow outliers: time",
        "Error by what is pruned",
        "Error by hot channels that moved",
    ]
    for figure in found.values():
        Figure(figure)
    assert [heading.text for heading in page.all("h3") if heading.text not in found] == [
        "Chunk-sharing graphs",
        "Synchronisation of the shadow",
        "Orders, simulated: bubbles",
        "Orders, replayed on the pair",
        "Orders under contention",
        "The three techniques, all eight ways",
        "What each technique does alone",
        "Reported by llm.npu",
    ]
    assert [heading.text for heading in page.all("h2")[2:]] == ["cpu: seeded-decoder, offload on cpu:0"]


def test_chunk_graphs_with_what_sharing_saves(page: Element) -> None:
    assert body(page, "Chunk-sharing graphs")[2] == [
        *("256 tokens", "sharing", "13.7", "1.9 (95 % 1.8 to 2.05)", "18", "1.575", "1.92", "2.26", "256", "3.54e-07"),
    ]
    section = page.all("section")[2].text
    assert "Weights saved by sharing against per_chunk: 50.00 % at 128 tokens, 75.00 % at 256 tokens" in section
    assert "(10 of 12 subgraphs of a chunk are shared)" in section
    assert "Reported (llm.npu, section 3.2; prompt 1,024, chunk 256: 120 of 144 subgraphs shared, 75 %" in section


def test_error_and_time_by_outlier_channels(page: Element) -> None:
    coarse = figures(page)["Shadow outliers: error"]["data"][1]
    assert (coarse["name"], coarse["x"], coarse["y"]) == ("max_min", ["0", "8"], [0.016, 0.08])
    assert figures(page)["Shadow outliers: error"]["layout"]["yaxis"]["type"] == "log"
    fast = figures(page)["Shadow outliers: time"]["data"][2]
    assert fast["y"] == pytest.approx([1, 1.5])
    assert body(page, "Time by arm")[2:4] == [
        ["0 outliers", "max_min", "2", "0.5 (95 % 0.45 to 0.55)", "9"],
        ["0 outliers", "parallel_fast", "1", "0.25", "9"],
    ]
    assert "From 12.50 % outlier channels on, one unit with mixed precision is faster" in page.text
    assert "no model's accuracy" in caption_of(page, "Shadow outliers: error")


def test_without_a_crossover_it_is_said(small: None) -> None:
    record = offload_case("shadow_outlier", arms=shadow_arms(), crossover_fraction=None, error_gain={})
    assert "One unit with mixed precision is nowhere faster" in page_of([record]).text


def test_synchronisation_as_percent(page: Element) -> None:
    assert body(page, "Synchronisation of the shadow") == [
        ["setting", "serial %", "parallel_fast %", "parallel_slow %", "error, max_min / shadow"],
        ["0 outliers", "–", "25.00", "–", "–"],
        ["8 outliers", "–", "7.65", "–", "20"],
    ]
    assert "Reported (llm.npu, section 3.3: qwen1.5-1.8b; latency 29.7 %; energy 20.1 %)" in page.text


def test_what_is_left_out(page: Element) -> None:
    channels, layers = figures(page)["Error by what is pruned"]["data"]
    assert (channels["x"], channels["y"]) == ([0, 85], [0.00385, 0.793])
    assert (layers["name"], layers["x"]) == ("layers", [0])
    assert body(page, "Error by what is pruned")[2] == ["channels", "85.00", "11.10", "0.793"]
    dropped, fetched = figures(page)["Error by hot channels that moved"]["data"]
    assert (dropped["y"], fetched["y"]) == ([0.652], [0.00385])
    assert body(page, "Error by hot channels that moved")[1] == ["50.00", "55.60", "0.652", "0.00385", "20.48"]
    assert "85 % of layers pruned" in caption_of(page, "Error by what is pruned")


def test_orders_simulated_and_replayed(page: Element) -> None:
    assert body(page, "Orders, simulated: bubbles") == [
        ["order", "2 chunks, bubble %", "8 chunks, bubble %"],
        ["fifo", "7.23 (1 x)", "–"],
        ["contribution", "–", "0.45 (0.905 x)"],
    ]
    assert "Reported (llm.npu, 37 %): printed there" in page.text
    assert body(page, "Orders, replayed on the pair")[2:] == [
        ["fifo", "20", "–", "40.00", "19"],
        ["contribution", "18.6", "0.93 (95 % 0.9 to 0.96)", "40.00", "19"],
    ]
    table = body(page, "Orders under contention")
    assert table[0] == ["order", "calm, ms", "calm, over FIFO", "hog, ms", "hog, over FIFO"]
    assert table[3] == ["contribution", "18.6", "0.93 (95 % 0.9 to 0.96)", "18.6", "1.03"]


def test_the_factorial_and_its_effects(page: Element) -> None:
    cells = body(page, "The three techniques, all eight ways")
    assert cells[2] == ["sharing+shadow", "16", "0.8", "50.00", "32", "1.5", "2.00", "0.337"]
    assert body(page, "What each technique does alone") == [
        ["with / without", "time", "relative error", "bytes of weights"],
        ["sharing", "0.956 (95 % 0.9 to 1.01)", "1", "0.25"],
        ["shadow", "1.17", "0.179", "–"],
        ["out_of_order", "0.636", "–", "–"],
        ["sharing x shadow", "0.963", "–", "–"],
    ]


def test_what_the_paper_has_is_apart(page: Element) -> None:
    table = {row[0]: row[1:] for row in body(page, "Reported by llm.npu")}
    assert table["abstract"][1].startswith("prefill speed-up, mean 22.4 x; energy saving, mean 30.7 x; ")
    assert table["abstract"][1].endswith("more than 1,000 tokens/s")
    assert table["section 4.1: Redmi K70 Pro"][1] == "lowest 3.28 x; highest 5.6 x"
    theirs = table["HeteroInfer (SOSP 2025), 5.3.1: internlm-1.8b"]
    assert theirs[1] == "heteroinfer 1,092 tokens/s; llm.npu 564 tokens/s"


def test_the_lines_stand_in_the_page_and_in_the_terminal(page: Element) -> None:
    orders = "C / FIFO 0.93 calm, 1.03 hog"
    alone = "time sharing -4 %, shadow +17 %, out_of_order -36 %; error shadow -82 %; weights sharing -75 %"
    assert offload_lines(offload_records()) == [f"offload: {orders}", f"offload, each alone: {alone}"]
    assert f"Offload: {orders}. Offload, each alone: {alone}." in page.all("section")[2].text
    lines = summary_lines(offload_records(), shown)
    assert lines[0] == f"offload: {orders}"
    assert max(map(len, lines)) <= 100


def test_without_contention_the_calm_orders_are_told() -> None:
    records = [record for record in offload_records() if "/contention/" not in record["case"]]
    assert offload_lines(records)[0] == "offload: C / FIFO 0.93 calm"
    on_second = [{**record, "device": "cuda:1"} for record in records]
    assert offload_lines(on_second)[0] == "offload: C / FIFO 0.93 calm (cuda:1)"
    assert offload_lines([{**record, "detail": {}} for record in records]) == []


def test_missing_figures_leave_gaps_and_not_nan(small: None) -> None:
    def emptied(value: Any) -> Any:
        if isinstance(value, float):
            return math.nan
        if isinstance(value, dict):
            return {name: emptied(item) for name, item in value.items()}
        return [emptied(item) for item in value] if isinstance(value, list) else value

    records = [{**record, "detail": emptied(record["detail"])} for record in offload_records()]
    page = page_of(records)
    figures(page)  # NaN is refused there
    assert body(page, "Orders, replayed on the pair")[1] == ["in_order", "–", "–", "–", "–"]
    assert body(page, "What each technique does alone")[1] == ["sharing", "–", "–", "–"]
    assert offload_lines(records) == []


def test_cases_that_measured_nothing_have_no_parts(small: None) -> None:
    verdict = {"kind": "invalid", "reason": "want two cores", "ratio": None, "interval": None, "mde": None}
    records = [{**record, "detail": {}, "metrics": {}, "verdict": verdict} for record in offload_records()]
    page = page_of(records)
    assert not page.all("figure")
    assert len(page.all("table")) == 1
    assert [row[6] for row in rows(page.all("table")[0])[1:]] == ["invalid"] * len(records)


def test_rounds_of_all_campaigns_are_told_together(tmp_path: Path) -> None:
    points = {
        "cpu-offload-shadow_outlier": "shadow/clip/8 outliers",
        "cpu-offload-out_of_order": "replay/contribution/calm",
        "cpu-offload-chunk_sharing": "chunk_graphs/sharing/256 tokens",
    }
    with open_journal(tmp_path / "journal.jsonl") as writer:
        digest = writer.device(make_fingerprint("A CPU"))
        for campaign, point in points.items():
            for index, seconds in enumerate((0.012, 0.008)):
                writer.append(
                    {
                        "record": "round",
                        "fingerprint": digest,
                        "campaign": campaign,
                        "campaign_digest": "0123456789ab",
                        "round": index,
                        "points": {f"{point}/total_s": [seconds], f"{point}/relative_error": [0.1]},
                        "failures": {},
                        "duration_s": 5.0,
                        "num_late_compiles": 0,
                        "complete": index == 1,
                    }
                )
        for record in offload_records():
            writer.append({"record": "case", **record, "fingerprint": digest})
    journal = read_journal(tmp_path / "journal.jsonl")
    page = page_of([record for record in journal.records if record["record"] == "case"], journal)
    drift = figures(page)["Drift from round to round"]["data"]
    traces = {trace["text"][0]: trace["y"] for trace in drift if "text" in trace}
    assert traces == {point: pytest.approx([1.2, 0.8]) for point in points.values()}
    assert "6 rounds of 3 campaigns in 30.0 s." in page.text


def test_names_stay_text(small: None) -> None:
    nasty = "<b onclick='x()'>b</b>"
    records = json.loads(json.dumps(offload_records()))
    for record in records:
        for row in record["detail"].get("arms", ()):
            row |= {"arm": nasty, "setting": nasty}
    assert not page_of(records).all("b")
    for chart in offload_charts(records):
        assert "<b" not in json.dumps(chart.figure)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(st.tuples(st.integers(0, 99), st.integers(0, 999), st.none() | JUNK), min_size=1, max_size=4))
def test_junk_in_any_place_of_a_record_does_not_stop_the_report(changes: list[tuple[int, int, object]]) -> None:
    records = json.loads(json.dumps(offload_records()))
    for number, place, value in changes:
        record = records[number % len(records)]
        places = list(_places(record)) or [("detail",)]
        *path, last = places[place % len(places)]
        target = record
        for key in path:
            target = target[key]
        if value is None and isinstance(target, dict):
            target.pop(last, None)
        else:
            target[last] = copy.deepcopy(value)
    records = readable(records)
    page = page_of(records)
    check_rows(page, records)
    figures(page)
