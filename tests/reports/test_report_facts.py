"""What the HTML report says of a run whose times stand in a table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pytest_npubench.reports import html
from pytest_npubench.reports.overview import overview
from pytest_npubench.reports.plot_parts import Shape
from pytest_npubench.store.journal import read_journal
from pytest_npubench.suites import shown
from pytest_npubench.verdict import Verdict, VerdictKind
from pytest_npubench.verdict.case_record import Cases

from .conftest import Rendered
from .journals import (
    BUCKETS,
    ROUND_FACTORS,
    TBT_S,
    TTFT_S,
    WORKLOADS,
    duration_s,
    judge,
    make_fingerprint,
    make_plan,
    measure,
    only,
    open_journal,
    write_rounds,
    write_run,
)
from .page import cases_of, check_svg, figures, page_of, read, rows, table_of, whiskers

CHARTS = (
    "TTFT_b by bucket",
    "TBT_b by bucket",
    "Latency steps by length",
    "Drift from round to round",
    "Prediction error by workload",
    "Predicted and measured by batch",
    "Profile: spread by bucket",
)


def test_the_head_counts_verdicts_and_names_the_run(run: Rendered) -> None:
    header = run.page.all("header")[0]
    num_cases = 2 * len(BUCKETS) + len(WORKLOADS) + 1
    assert header.one("h1").text == f"{num_cases} cases measured, none failing"
    assert [item.text for item in header.all("li")] == [f"{num_cases} passed"]
    facts = dict(zip((dt.text for dt in header.all("dt")), (dd.text for dd in header.all("dd")), strict=True))
    assert facts["Profile"] == "quick"
    assert facts["Git revision"] == "0123456789ab"
    assert facts["Time in cases"] == "13.5 s"  # 9 cases of 1.5 s
    assert facts["Session"] == run.journal.sessions[0].id
    assert facts["Mean prediction error"].startswith("0.00%")
    assert facts["Started"] == run.journal.sessions[0].header["started_at"].replace("T", " ").replace("+00:00", " UTC")


def test_the_case_table_has_a_row_a_case(run: Rendered) -> None:
    header, *body = rows(run.page.all("table")[0])
    assert len(body) == len(run.records)
    assert header == ["case", "what", "quartile", "predicted", "measured", "error %", "repeat %", "verdict", "why"]
    by_what = {row[1]: row for row in body}
    samples = {one["what"]: one["metrics"]["ttft_s"]["samples"] for one in run.records if "ttft_s" in one["metrics"]}
    for bucket in TTFT_S:
        row = by_what[f"TTFT of bucket {bucket}"]
        assert row[2].endswith(" ms")
        assert float(row[2].split()[0]) == pytest.approx(1e3 * np.quantile(samples[row[1]], 0.25), rel=1e-3)
        assert row[7] == "passed"


def test_failing_rows_come_first_and_are_marked(tmp_path: Path) -> None:
    write_run(tmp_path / "journal.jsonl", measure(make_plan(), slow={f"batch/{WORKLOADS[1]}": 1.5}))
    journal = read_journal(tmp_path / "journal.jsonl")
    page = page_of(cases_of(journal), journal)
    body = page.all("table")[0].all("tr")[1:]
    verdicts = [row.all("span")[0].text for row in body]
    assert verdicts == sorted(verdicts)  # failed before passed
    assert verdicts.count("failed") == 2  # the workload and the mean over both
    assert [row.attributes["class"] for row in body[:3]] == ["bad", "bad", "good"]
    assert page.one("h1").text == "2 of 9 cases failing"
    limits = [row for row in table_of(page, "Prediction by workload") if row[0] == WORKLOADS[1]]
    for column in (3, 5):  # the error of the sum, and what is held to the limit, with its sign
        assert float(limits[0][column]) == pytest.approx(100 * (1 / 1.5 - 1), abs=0.01)


def test_bucket_charts_show_the_table_in_milliseconds_on_a_log_axis(run: Rendered) -> None:
    for title, times_s in (("TTFT_b by bucket", TTFT_S), ("TBT_b by bucket", TBT_S)):
        figure = figures(run.page)[title]
        (trace,) = figure.series
        assert trace.x == list(BUCKETS)
        assert trace.y == pytest.approx([1e3 * times_s[bucket] for bucket in BUCKETS])
        assert figure.x.log
        assert all(below > 0 and above > 0 for below, above in whiskers(trace.y, trace.y_ends))
    # E1 of N = 1 is one TTFT, six samples of the three round factors, so its standard error is known in closed form
    spread = [factor for factor in ROUND_FACTORS for _ in range(2)]
    variance = sum((factor - 1) ** 2 for factor in spread) / (len(spread) - 1)
    expected = [1e3 * TTFT_S[bucket] * (variance / len(spread)) ** 0.5 for bucket in BUCKETS]
    (trace,) = figures(run.page)["TTFT_b by bucket"].series
    assert [above for _, above in whiskers(trace.y, trace.y_ends)] == pytest.approx(expected)
    assert trace.shape is Shape.TREADS  # nothing is interpolated between buckets


def test_steps_chart_shows_each_length_once_with_the_boundaries(run: Rendered) -> None:
    figure = figures(run.page)["Latency steps by length"]
    trace = figure.series[0]
    assert trace.x == [64, 127, 128, 129, 192, 255, 256, 257, 384, 511, 512]
    assert trace.y == pytest.approx([10.0] * 3 + [18.0] * 4 + [34.0] * 4)
    assert figure.verticals == BUCKETS
    lens = figure.series[1]
    assert (list(lens.x), lens.y) == (list(BUCKETS), pytest.approx([1e3 * seconds for seconds in TTFT_S.values()]))


def test_the_first_screen_answers_with_pictures(run: Rendered) -> None:
    answers = [one for one in run.page.all("header")[0].all("div") if one.attributes.get("class") == "answer"]
    said = [one.all("p")[0].text for one in answers]
    assert said == [
        "Prefill takes 10 ms to 34 ms, and jumps at the ends of 3 buckets",
        f"LENS is off by 0.0% (median of {len(WORKLOADS)} workloads, 0.0% at worst)",
    ]
    ids = {one.attributes["id"] for one in run.page.all("h3") if "id" in one.attributes}
    assert {link.attributes["href"][1:] for one in answers for link in one.all("a")} <= ids


def test_a_jump_inside_a_bucket_is_marked(tmp_path: Path) -> None:
    write_run(tmp_path / "journal.jsonl", measure(make_plan(), slow={"step/255": 1.5}))
    journal = read_journal(tmp_path / "journal.jsonl")
    page = page_of(cases_of(journal), journal)
    marked = {trace.name: trace.x for trace in figures(page)["Latency steps by length"].series}
    assert marked["jump inside a bucket"] == [255, 256]  # up to 255 and down again


def test_prediction_charts_show_limit_repeat_error_and_every_batch(run: Rendered) -> None:
    chart = figures(run.page)["Prediction error by workload"]
    assert chart.band == (-10, 10)
    traces = {trace.name: trace for trace in chart.series}
    assert traces["error of the sum, 95 % interval"].x == pytest.approx([0, 0], abs=1e-6)
    repeats = {r["detail"]["workload"]: r["repeat_error"] for r in run.records if "/prediction/" in r["case"]}
    around = traces["± repeat error"]
    for name, repeat in zip(around.y, around.x, strict=True):
        assert repeat == pytest.approx(100 * repeats[name])
    scatter = figures(run.page)["Predicted and measured by batch"]
    plan = make_plan()
    for trace in scatter.series:
        if trace.name in WORKLOADS:
            expected = [1e3 * duration_s(batch) for batch in plan.draws(trace.name)]
            assert trace.x == pytest.approx(expected)
            assert trace.y == pytest.approx(expected)
    assert [row[0] for row in table_of(run.page, "Batches")[1:]] == [name for name in WORKLOADS for _ in range(2)]


def test_padding_and_dropped_requests(run: Rendered) -> None:
    details = {r["detail"]["workload"]: r["detail"] for r in run.records if "/prediction/" in r["case"]}
    header, *body = table_of(run.page, "Prediction")
    for row in (dict(zip(header, cells, strict=True)) for cells in body):
        detail = details[row["workload"]]
        assert (row["dropped"], row["drawn"]) == (str(detail["num_dropped"]), str(detail["num_drawn"]))
        for phase in ("prefill", "decode"):
            padding = 100 * detail[f"{phase}_padding_fraction"]
            assert float(row[f"{phase} padding, %"]) == pytest.approx(padding, rel=0.01)


def test_drift_is_each_rounds_mean_over_the_overall_mean(run: Rendered) -> None:
    traces = figures(run.page)["Drift from round to round"].series
    assert len(traces) == len(run.journal.records[1]["points"]) + 1
    for trace in traces:
        assert trace.y == pytest.approx(ROUND_FACTORS)
    assert sum(trace.in_legend for trace in traces) == 5  # batch, move, profile, step and the median
    body = table_of(run.page, "Drift of all points by round")[1:]
    assert [float(row[2]) for row in body] == pytest.approx(ROUND_FACTORS)


def test_cost_table_adds_up(run: Rendered) -> None:
    header, *body = table_of(run.page, "Profile: cost")
    cells = {row[0]: dict(zip(header[1:], row[1:], strict=True)) for row in body}
    assert list(cells) == [str(bucket) for bucket in BUCKETS]
    assert [row["cost binaries"] for row in cells.values()] == ["2"] * len(BUCKETS)
    plan = make_plan()
    points = [plan.profile_point(point) for point in plan.profile_points(BUCKETS)]
    expected = sum(2 * factor * duration_s(point) for point in points for factor in ROUND_FACTORS)
    total_s = sum(float(row["cost measure, s"]) for row in cells.values())
    assert total_s == pytest.approx(expected, rel=1e-3)


def test_the_mean_error_case_is_told_with_its_spread(tmp_path: Path) -> None:
    """Errors are 0 and 1/1.5 - 1, a third: the mean is half of that, the median too, p90 nine tenths of it."""
    write_run(tmp_path / "journal.jsonl", measure(make_plan(), slow={f"batch/{WORKLOADS[1]}": 1.5}))
    journal = read_journal(tmp_path / "journal.jsonl")
    page = page_of(cases_of(journal), journal)
    assert (
        "Mean prediction error 16.67% (signed mean -16.67%, median 16.67%, p90 30.00%, max 33.33%)." in page.text
    )  # of two cases
    assert "is not shown" not in page.text


def test_all_metrics_are_listed_in_milliseconds(run: Rendered) -> None:
    body = table_of(run.page, "All metrics")[1:]
    assert len(body) == sum(len(record["metrics"]) for record in run.records)
    bucket128 = next(row for row in body if row[0].endswith("bucket128") and row[1] == "ttft_s")
    assert bucket128[2:6] == ["10 ms", "6", "9 ms", "12 ms"]


def test_devices_stand_side_by_side(tmp_path: Path) -> None:
    with open_journal(tmp_path / "journal.jsonl") as writer:
        for ordinal, name in enumerate(("NVIDIA H200", "NVIDIA A100")):
            digest = writer.device(make_fingerprint(name))
            measurement = measure(make_plan())
            write_rounds(writer, measurement, digest)
            for judged in judge(measurement, fingerprint=digest, device=f"cuda:{ordinal}"):
                writer.append({"record": "case", **judged.to_json()})
    journal = read_journal(tmp_path / "journal.jsonl")
    page = page_of(cases_of(journal), journal)
    facts = table_of(page, "Who measured: devices, their software and their hosts")
    assert facts[0] == ["fact", "cuda:0", "cuda:1"]
    assert ["accelerator", "NVIDIA H200", "NVIDIA A100"] in facts
    assert ["compiler", "unknown", "unknown"] in facts
    assert ["libraries", *["jax 0.10.2, numpy 2.4.6"] * 2] in facts
    titles = [heading.text for heading in page.all("h2")]
    assert titles[2:] == ["cpu: tiny-llama, batch 1 on cuda:0", "cpu: tiny-llama, batch 1 on cuda:1"]
    targets = [link.attributes["href"][1:] for link in page.one("nav").all("a")]
    assert targets == [heading.attributes["id"] for heading in page.all("h2")[2:]]
    ids = [row[0] for row in rows(page.all("table")[0])[1:]]
    assert sum(name.endswith("on cuda:1") for name in ids) == len(ids) / 2


def test_a_resumed_campaign_shows_the_rounds_of_the_earlier_session(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    measurement = measure(make_plan())
    write_run(path, measurement)
    with open_journal(path) as writer:
        digest = writer.device(make_fingerprint())
        records = [judged.to_json() for judged in judge(measurement, fingerprint=digest)]
        for record in records:
            writer.append({"record": "case", **record})
    page = read(
        html.render_html(records, read_journal(path), shown)
    )  # as the plugin hands them over: without a session
    assert "Drift from round to round" in figures(page)
    assert page.all("header")[0].text.count(writer.session) == 1


def test_a_report_shows_its_own_rounds_not_earlier_or_later_ones(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    whole = measure(make_plan())
    for measurement in (only(whole, "step"), whole, only(whole, "profile")):
        write_run(path, measurement)
    journal = read_journal(path)
    page = page_of([r for r in journal.sessions[1].records if r["record"] == "case"], journal)
    assert len(figures(page)["Drift from round to round"].series) == len(whole.points) + 1


def test_every_figure_is_drawn_whole(run: Rendered) -> None:
    found = figures(run.page)
    assert tuple(found) == CHARTS
    for figure in found.values():
        check_svg(figure)


def test_each_metric_is_defined_where_it_is_shown(run: Rendered) -> None:
    for figure in run.page.all("figure"):
        assert figure.one("figcaption").text
    text = run.page.text
    words = ("TTFT_b, time to first token", "TBT_b, time between tokens", "Prediction error:", "Repeat error:")
    for definition in (*words, "Prefill padding fraction:", "Decode padding fraction:"):
        assert definition in text


def test_disturbed_cases_are_not_called_failing(tmp_path: Path) -> None:
    write_run(tmp_path / "journal.jsonl", measure(make_plan(), slow={f"batch/{WORKLOADS[1]}": 1.5}))
    journal = read_journal(tmp_path / "journal.jsonl")
    cases = Cases.read(cases_of(journal))

    def headline(is_failing_kept: bool) -> tuple[str, str, list[str]]:
        verdict = Verdict(kind=VerdictKind.INVALID, reason="2 of 2 rounds disturbed")
        disturbed = [
            one
            if one.judgement.verdict.kind is VerdictKind.FAILED and is_failing_kept
            else replace(one, judgement=replace(one.judgement, verdict=verdict, is_disturbed=True))
            for one in cases.records
        ]
        said = overview(replace(cases, records=tuple(disturbed)), journal)
        return said.headline, said.tone, [name for name, _, _ in said.counts]

    assert headline(is_failing_kept=True) == ("2 of 9 cases failing, 7 disturbed", "bad", ["disturbed", "failed"])
    assert headline(is_failing_kept=False) == ("9 of 9 cases disturbed", "bad", ["disturbed"])
