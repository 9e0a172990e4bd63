"""What the report says of the offload suite, from records whose numbers were written down by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from reports.journals import make_fingerprint, open_journal
from reports.page import Element, check_svg, figures, read, rows, table_of

from pytest_npubench.extensions.pairs.offload.effects import CellRow, Effect
from pytest_npubench.extensions.pairs.offload.out_of_order import OrderOutcome
from pytest_npubench.extensions.pairs.offload.summaries import ChunkRow, FactorialEffects, ReplayRow, ShadowRow
from pytest_npubench.extensions.pairs.suites.offload.kinds.chunk_sharing import ChunkSharingDetail
from pytest_npubench.extensions.pairs.suites.offload.kinds.contention import ContentionDetail
from pytest_npubench.extensions.pairs.suites.offload.kinds.factorial import FactorialDetail
from pytest_npubench.extensions.pairs.suites.offload.kinds.out_of_order import OutOfOrderDetail
from pytest_npubench.extensions.pairs.suites.offload.kinds.shadow_outlier import ShadowOutlierDetail
from pytest_npubench.extensions.pairs.suites.offload.report.section import lines, parts
from pytest_npubench.reports import html, svg
from pytest_npubench.reports.terminal import summary_lines
from pytest_npubench.store.journal import Journal, read_journal
from pytest_npubench.suites import shown
from pytest_npubench.verdict.case_record import Cases

from .paired import damaged, pair_record, unmeasured


def section_of(records: Sequence[dict[str, Any]]) -> tuple[Any, ...]:
    """Charts, tables and remarks, those of records that cannot be read among these, as the page has them."""
    cases = Cases.read(records)
    charts, tables, remarks = parts(cases, ())
    return charts, tables, (*remarks, *dict.fromkeys(cases.unread))


NO_JOURNAL = Journal(path=Path("j"), sessions=(), records=(), torn=())
SPACE = "\u00a0"
Json = dict[str, Any]


MEASURED_FOR = {"contention": "out_of_order"}
"""Cases that the campaign of another experiment measures."""


def offload_case(kind: str, detail: object, device: str = "cpu:0") -> Json:
    campaign = f"cpu-offload-{MEASURED_FOR.get(kind, kind)}"
    return pair_record("offload", kind, "seeded-decoder", detail, campaign=campaign, device=device)


def shadow(
    arm: str, count: int, total_s: float, error: float, over: Over = (None, None), sync_fraction: float = 0.25
) -> ShadowRow:
    return ShadowRow(
        arm=arm,
        setting=f"{count} outliers",
        total_s=total_s,
        static_s=0.001,
        dynamic_s=0.001,
        sync_fraction=sync_fraction,
        num_outlier_channels=9,
        relative_error=error,
        over=over[0],
        over_interval=over[1],
    )


Over = tuple[float | None, tuple[float | None, float | None] | None]
UNSURE = (None, None)


def shadows(crossover_fraction: float | None = 0.125) -> ShadowOutlierDetail:
    return ShadowOutlierDetail(
        arms=(
            shadow("fp32", 0, 0.004, 4e-7),
            shadow("max_min", 0, 0.002, 0.016, (0.5, (0.45, 0.55))),
            shadow("parallel_fast", 0, 0.001, 0.015, (0.25, UNSURE)),
            shadow("fp32", 8, 0.004, 4e-7),
            shadow("max_min", 8, 0.002, 0.08, (0.5, UNSURE)),
            shadow("parallel_fast", 8, 0.0015, 0.004, (0.375, UNSURE), sync_fraction=0.0765),
        ),
        crossover_fraction=crossover_fraction,
        error_gain={"8": 20.0},
    )


def replayed(*contention: str) -> tuple[ReplayRow, ...]:
    ratios = {"in_order": 1.22, "fifo": None, "contribution": 0.93}
    return tuple(
        ReplayRow(
            arm=policy,
            setting=setting,
            total_s=0.02 * (ratio or 1.0),
            bubble_fraction=0.4,
            predicted_s=0.019,
            stalled_s=0.0,
            relative_error=0.3,
            over=None if ratio is None else ratio + 0.1 * place,
            over_interval=None
            if ratio is None
            else ((0.9, 0.96) if policy == "contribution" and not place else UNSURE),
        )
        for place, setting in enumerate(contention)
        for policy, ratio in ratios.items()
    )


def effect(ratio: float, *factors: str, ends: tuple[float, float] | None = None) -> Effect:
    low, high = ends or UNSURE
    return Effect(factors=factors, ratio=ratio, low=low, high=high, num_rounds=6)


def chunks(arm: str, total_s: float, over: Over = (None, None)) -> ChunkRow:
    return ChunkRow(
        arm=arm,
        setting="256 tokens",
        num_graphs=18,
        weight_bytes=1574912,
        executable_bytes=1919826,
        compile_s=2.26,
        run_s=0.006,
        total_s=total_s,
        computed_tokens=256,
        relative_error=3.54e-7,
        over=over[0],
        over_interval=over[1],
    )


def cell(name: str, over_none: float, total_s: float) -> CellRow:
    return CellRow(
        cell=name,
        over_none=over_none,
        num_graphs=32,
        weight_bytes=1.5e6,
        executable_bytes=2e6,
        compile_s=2.0,
        total_s=total_s,
        bubble_fraction=0.5,
        relative_error=0.337,
    )


def order(policy: str, num_chunks: int, bubble_fraction: float, over_fifo: float) -> OrderOutcome:
    return OrderOutcome(
        policy=policy,
        num_chunks=num_chunks,
        makespan_s=0.57,
        bubble_fraction=bubble_fraction,
        over_fifo=over_fifo,
        over_bound=1.1,
        over_optimum=None,
    )


def offload_records(device: str = "cpu:0") -> list[Json]:
    """One case of every kind."""
    details = {
        "chunk_sharing": ChunkSharingDetail(
            arms=(chunks("whole", 0.0072), chunks("sharing", 0.0137, (1.9, (1.8, 2.05)))),
            saved_fraction={"128": 0.5, "256": 0.75},
            shared_subgraphs={"128": (10, 12), "256": (10, 12)},
        ),
        "shadow_outlier": shadows(),
        "out_of_order": OutOfOrderDetail(
            arms=replayed("calm"),
            simulated=(order("fifo", 2, 0.0723, 1.0), order("contribution", 8, 0.0045, 0.905)),
            published="llm.npu, 37 %",
        ),
        "contention": ContentionDetail(arms=replayed("calm", "hog"), contribution_over_fifo={"calm": 0.93}),
        "factorial": FactorialDetail(
            cells=(cell("none", 1.0, 0.02), cell("sharing+shadow", 0.8, 0.016)),
            effects=FactorialEffects(
                time=(
                    effect(0.956, "sharing", ends=(0.9, 1.01)),
                    effect(1.174, "shadow"),
                    effect(0.636, "out_of_order"),
                    effect(0.963, "sharing", "shadow"),
                ),
                error=(effect(1.0, "sharing"), effect(0.179, "shadow")),
                weight_bytes=(effect(0.25, "sharing", ends=(0.25, 0.25)),),
            ),
        ),
    }
    return [offload_case(kind, detail, device) for kind, detail in details.items()]


def page_of(records: list[Json], journal: Journal = NO_JOURNAL) -> Element:
    return read(html.render_html(records, journal, shown))


@pytest.fixture
def page() -> Element:
    return page_of(offload_records())


def body(page: Element, caption: str) -> list[list[str]]:
    return [[cell.replace(SPACE, " ") for cell in row] for row in table_of(page, caption)]


def caption_of(page: Element, title: str) -> str:
    return next(f.one("figcaption").text for f in page.all("figure") if f.all("h3")[0].text == title)


def test_every_kind_is_shown_and_the_charts_are_whole(page: Element) -> None:
    found = figures(page)
    assert list(found) == [
        "Shadow outliers: error",
        "Shadow outliers: time",
    ]
    for figure in found.values():
        check_svg(figure)
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
    coarse = figures(page)["Shadow outliers: error"].series[1]
    assert (coarse.name, coarse.x, coarse.y) == ("max_min", ["0", "8"], [0.016, 0.08])
    assert figures(page)["Shadow outliers: error"].y.log
    fast = figures(page)["Shadow outliers: time"].series[2]
    assert fast.y == pytest.approx([1, 1.5])
    assert body(page, "Time by arm")[2:4] == [
        ["0 outliers", "max_min", "2", "0.5 (95 % 0.45 to 0.55)", "9"],
        ["0 outliers", "parallel_fast", "1", "0.25", "9"],
    ]
    assert "From 12.50 % outlier channels on, one unit with mixed precision is faster" in page.text
    assert "no model's accuracy" in caption_of(page, "Shadow outliers: error")


def test_without_a_crossover_it_is_said() -> None:
    record = offload_case("shadow_outlier", shadows(crossover_fraction=None))
    assert "One unit with mixed precision is nowhere faster" in page_of([record]).text


def test_synchronisation_as_percent(page: Element) -> None:
    assert body(page, "Synchronisation of the shadow") == [
        ["setting", "serial %", "parallel_fast %", "parallel_slow %", "error, max_min / shadow"],
        ["0 outliers", "–", "25.00", "–", "–"],
        ["8 outliers", "–", "7.65", "–", "20"],
    ]
    assert "Reported (llm.npu, section 3.3: qwen1.5-1.8b; latency 29.7 %; energy 20.1 %)" in page.text


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
    assert lines(Cases.read(offload_records())) == [f"offload: {orders}", f"offload, each alone: {alone}"]
    assert f"Offload: {orders}. Offload, each alone: {alone}." in page.all("section")[2].text
    last = summary_lines(offload_records(), shown)
    assert last[0] == f"offload: {orders}"
    assert max(map(len, last)) <= 100


def test_without_contention_the_calm_orders_are_told() -> None:
    records = [record for record in offload_records() if "/contention/" not in record["case"]]
    assert lines(Cases.read(records))[0] == "offload: C / FIFO 0.93 calm"
    assert lines(Cases.read(offload_records("cuda:1")))[0] == "offload: C / FIFO 0.93 calm, 1.03 hog (cuda:1)"
    assert lines(Cases.read([{**record, "detail": {}} for record in records])) == []


def test_cases_that_measured_nothing_have_no_parts() -> None:
    records = list(map(unmeasured, offload_records()))
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
    drift = figures(page)["Drift from round to round"].series
    traces = {trace.told: trace.y for trace in drift if trace.told}
    assert traces == {point: pytest.approx([1.2, 0.8]) for point in points.values()}
    assert "6 rounds of 3 campaigns in 30.0 s." in page.text


def test_names_stay_text() -> None:
    nasty = "<b onclick='x()'>b</b>"
    records = json.loads(json.dumps(offload_records()))
    for record in records:
        for row in record["detail"].get("arms", ()):
            row |= {"arm": nasty, "setting": nasty}
    assert not page_of(records).all("b")
    for chart in section_of(records)[0]:
        assert "<b" not in svg.draw(chart.figure, label="a chart")


def test_a_record_of_another_version_is_named_and_the_others_are_shown() -> None:
    """Whatever figure of its detail is none."""
    for record in offload_records():
        for changed in damaged(record):
            *_, (said,) = section_of([changed])
            assert said.startswith(f"{record['id']} is not shown: its record is of another version"), changed["detail"]
    *others, last = offload_records()
    page = page_of([{**last, "detail": {"cells": []}}, *others])
    assert f"{last['id']} is not shown: " in page.text
    assert "Orders under contention" in page.text
