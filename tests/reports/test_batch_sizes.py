"""Stairs and throughput over batch sizes, and which picture a case leads to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytest_npubench.reports.campaign_sections import campaign_sections
from pytest_npubench.store.journal_reader import Journal
from pytest_npubench.suites import shown
from pytest_npubench.suites.buckets.kinds.prediction import PredictionDetail
from pytest_npubench.suites.buckets.report.batch_sizes import batch_charts, throughputs
from pytest_npubench.verdict.case_record import Cases

from .page import page_of


def record(kind: str, batch: int, detail: dict[str, Any], **axes: Any) -> dict[str, Any]:
    name = f"cpu-tiny-b{batch}-{'-'.join(f'{key}{value}' for key, value in axes.items())}"
    return {
        "case": f"buckets/{kind}/{name}",
        "id": name,
        "node": "",
        "hardware": "cpu",
        "model": "tiny",
        "batch_size": batch,
        "axes": axes,
        "digest": "d",
        "device": "cpu:0",
        "fingerprint": None,
        "duration_s": 1.0,
        "campaign": f"cpu-tiny-b{batch}",
        "limits": {},
        "verdict": {"kind": "passed", "reason": ""},
        "metrics": {},
        "detail": detail,
    }


def prediction(batch: int, measured_s: float, predicted_s: float, tokens: int | None) -> dict[str, Any]:
    detail = {"workload": "w", "predicted_s": [predicted_s], "measured_s": [measured_s], "num_output_tokens": tokens}
    return record("prediction", batch, detail, workload="w")


def profile(batch: int, bucket: int, ttft_s: float) -> dict[str, Any]:
    return record("profile", batch, {"bucket": bucket, "ttft_s": ttft_s, "tbt_s": ttft_s / 10}, bucket=bucket)


def test_throughput_is_tokens_over_seconds_and_the_star_is_the_predicted_best() -> None:
    rows = [prediction(1, 2.0, 1.0, 100), prediction(4, 1.0, 4.0, 200), prediction(2, 1.0, 2.0, 150)]
    cases = Cases.read(rows)
    found = throughputs(cases.of("prediction", PredictionDetail))
    assert found == {"w": {1: (50.0, 100.0), 2: (150.0, 75.0), 4: (200.0, 50.0)}}
    (chart,) = batch_charts(Cases.read(rows))
    (star,) = [series for series in chart.figure.series if series.symbol == "star"]
    assert (list(star.x), list(star.y)) == ([1], [100.0])
    assert "0 of 1 workloads" in chart.summary


def test_records_without_tokens_and_a_single_batch_size_have_no_throughput() -> None:
    assert batch_charts(Cases.read([prediction(1, 2.0, 1.0, None), prediction(2, 2.0, 1.0, None)])) == ()
    assert batch_charts(Cases.read([prediction(1, 2.0, 1.0, 10)])) == ()


def test_stairs_of_every_batch_size_lie_over_each_other() -> None:
    rows = [profile(batch, bucket, bucket * batch / 1e4) for batch in (8, 1) for bucket in (256, 128)]
    first, second = batch_charts(Cases.read(rows))
    assert [(series.name, list(series.x), list(series.y)) for series in first.figure.series] == [
        ("batch 1", [128, 256], [12.8, 25.6]),
        ("batch 8", [128, 256], [102.4, 204.8]),
    ]
    assert second.title == "TBT_b by bucket, every batch size"


def test_a_case_leads_to_the_chart_that_shows_it() -> None:
    rows = [profile(1, 128, 0.1), profile(8, 128, 0.2), prediction(1, 2.0, 1.0, 10)]
    journal = Journal(path=Path("none"), sessions=(), records=(), torn=())
    across, one, eight = campaign_sections(Cases.read(rows), journal, (), shown)
    assert across.title == "cpu: tiny, all batch sizes"
    titles = {one.anchor_of(chart): chart.title for chart in one.charts}
    assert next(titles.get(anchor) for anchor in one.pictures.values()) == "TTFT_b by bucket"
    assert list(eight.pictures.values()) == [eight.anchor_of(eight.charts[0])]
    for section in (one, eight):
        ids = dict(section.cases)
        for row, anchor in section.pictures.items():  # and back again
            assert (row, ids[row]) in section.shown[anchor]
    assert [len(links) for links in eight.shown.values()] == [1, 1]  # its TTFT_b and its TBT_b


def test_a_chart_leads_back_to_its_cases_and_to_no_other() -> None:
    rows = [profile(1, 128 * place, 0.1) for place in range(1, 9)]
    page = page_of([*rows, prediction(1, 2.0, 1.0, 10)])
    ids = {row.attributes["id"]: row.one("a").text for row in page.all("tr") if row.attributes.get("id")}
    figure = next(one for one in page.all("figure") if one.all("h3")[0].text == "TTFT_b by bucket")
    (back,) = (one for one in figure.all("p") if one.attributes.get("class") == "back")
    links = {link.attributes["href"].removeprefix("#"): link.text for link in back.all("a")}
    assert len(links) == 6
    assert {anchor: f"buckets/{text}" for anchor, text in links.items()}.items() <= ids.items()
    assert back.text.endswith("and 2 more, listed at the end of this section")
