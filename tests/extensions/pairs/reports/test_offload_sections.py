"""What the report says of the offload suite, from records whose numbers were written down by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from reports.page import Element, figures, page_of, rows

from pytest_npubench.extensions.pairs.offload.effects import CellRow, Effect
from pytest_npubench.extensions.pairs.offload.out_of_order import OrderOutcome
from pytest_npubench.extensions.pairs.offload.summaries import ChunkRow, FactorialEffects, ReplayRow, ShadowRow
from pytest_npubench.extensions.pairs.suites.offload.kinds.chunk_sharing import ChunkSharingDetail
from pytest_npubench.extensions.pairs.suites.offload.kinds.contention import ContentionDetail
from pytest_npubench.extensions.pairs.suites.offload.kinds.factorial import FactorialDetail
from pytest_npubench.extensions.pairs.suites.offload.kinds.out_of_order import OutOfOrderDetail
from pytest_npubench.extensions.pairs.suites.offload.kinds.shadow_outlier import ShadowOutlierDetail
from pytest_npubench.extensions.pairs.suites.offload.report.section import lines, parts
from pytest_npubench.reports import svg
from pytest_npubench.reports.terminal import summary_lines
from pytest_npubench.suites import shown
from pytest_npubench.verdict.case_record import Cases

from .paired import page_with_rounds, pair_record, section_of, unmeasured

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


@pytest.fixture
def page() -> Element:
    return page_of(offload_records())


def test_every_kind_is_shown(page: Element) -> None:
    captions = [caption.text for caption in page.all("caption")]
    for kind in ("Chunk sharing: arms", "Shadow outlier: arms", "Out of order: simulated", "Contention: arms"):
        assert kind in captions
    assert {"Factorial: cells", "Factorial: effects time", "Factorial: effects weight"} <= set(captions)
    assert [heading.text for heading in page.all("h2")[2:]] == ["cpu: seeded-decoder, offload on cpu:0"]


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
    header, *body = rows(page.all("table")[0])
    assert [row[header.index("verdict")] for row in body] == ["invalid"] * len(records)


def test_rounds_of_all_campaigns_are_told_together(tmp_path: Path) -> None:
    points = {
        "cpu-offload-shadow_outlier": "shadow/clip/8 outliers",
        "cpu-offload-out_of_order": "replay/contribution/calm",
        "cpu-offload-chunk_sharing": "chunk_graphs/sharing/256 tokens",
    }
    rounds = {
        campaign: [{f"{point}/total_s": [seconds], f"{point}/relative_error": [0.1]} for seconds in (0.012, 0.008)]
        for campaign, point in points.items()
    }
    page = page_with_rounds(tmp_path, offload_records(), rounds, duration_s=5.0)
    drift = figures(page)["Drift from round to round"].series
    traces = {trace.title: trace.y for trace in drift if trace.title}
    assert traces == {point: pytest.approx([1.2, 0.8]) for point in points.values()}
    assert "6 rounds of 3 campaigns in 30.0 s." in page.text


def test_names_stay_text() -> None:
    nasty = "<b onclick='x()'>b</b>"
    records = json.loads(json.dumps(offload_records()))
    for record in records:
        for row in record["detail"].get("arms", ()):
            row |= {"arm": nasty, "setting": nasty}
    assert not page_of(records).all("b")
    for chart in section_of(parts, records)[0]:
        assert "<b" not in svg.draw(chart.figure, label="a chart")
