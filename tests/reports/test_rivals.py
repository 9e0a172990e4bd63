"""Rivals of LENS in what a run says and shows: any number of them, by the figures of their own cases."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from pytest_npubench.reports import html
from pytest_npubench.store.journal import Journal, read_journal
from pytest_npubench.suites import shown
from pytest_npubench.suites.buckets.kinds.prediction import PredictionDetail, RivalDetail
from pytest_npubench.suites.buckets.report.section import lines, parts
from pytest_npubench.verdict.case_record import Cases

from .journals import make_plan, measure, write_run

RIVALS = ("LENS with moves", "linear", "nobody")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], Journal]:
    """All cases of one campaign that was judged beside two rivals, of which nobody has the one."""
    path: Path = tmp_path_factory.mktemp("rivals") / "journal.jsonl"
    write_run(path, measure(replace(make_plan(), rivals=RIVALS)))
    journal = read_journal(path)
    return [dict(record) for record in journal.records if record["record"] == "case"], journal


def of_linear(records: list[dict[str, Any]]) -> list[RivalDetail]:
    return [case.detail.predictors["linear"] for case in Cases.read(records).of("prediction", PredictionDetail)]


def test_the_end_of_a_run_has_a_line_of_errors_and_one_of_costs_for_each(run) -> None:
    records, _ = run
    said = lines(Cases.read(records))
    figures = of_linear(records)
    mean = fmean(one.gate_error for one in figures)
    assert mean > 0.01
    (errors,) = (line for line in said if line.startswith("linear prediction error"))
    assert errors.startswith(f"linear prediction error over {len(figures)} cases: mean {mean:.2%}")
    (costs,) = (line for line in said if line.startswith("linear profiling cost"))
    assert costs.startswith(f"linear profiling cost: 1 session, {max(one.cost.points for one in figures)} points")
    (nobody,) = (line for line in said if line.startswith("nobody"))
    assert nobody.startswith(f"nobody predicted nothing in {len(figures)} cases: no predictor 'nobody'; known: lens")


def test_the_mean_error_of_all_campaigns_says_how_well_it_is_known(run) -> None:
    """2.2 % ±1.2 % and 1.2 % ±0.5 % over three workloads each: (2.2 + 1.2) / 2, and the root of (1.2^2 + 0.5^2) / 4."""
    (own,) = (record for record in run[0] if record["case"].startswith("buckets/mean_error/"))
    both = [
        {**own, "error_interval": [max(0.0, mean - half), mean + half], "detail": {**own["detail"], **figures}}
        for mean, half in ((0.022, 0.012), (0.012, 0.005))
        for figures in ({"mean": mean, "num_cases": 3},)
    ]
    assert "mean of 6 prediction errors: 1.70% ±0.65% (95 % interval, from the rounds)" in lines(Cases.read(both))
    both[0]["error_interval"] = None
    assert not any(line.startswith("mean of") for line in lines(Cases.read(both)))


def test_without_rivals_nothing_else_is_said_or_shown(run) -> None:
    records, _ = run
    for record in records:
        record = {**record, "detail": {k: v for k, v in record["detail"].items() if k != "predictors"}}
        assert not any("linear" in line or "rival" in line for line in lines(Cases.read([record])))
    alone = [{**one, "detail": {k: v for k, v in one["detail"].items() if k != "predictors"}} for one in records]
    assert lines(Cases.read(alone)) == [line for line in lines(Cases.read(records)) if not line.startswith(RIVALS)]


def test_the_chart_of_errors_and_its_table_have_each(run) -> None:
    records, _ = run
    charts, _, remarks = parts(Cases.read(records), [])
    (chart,) = (chart for chart in charts if chart.title == "Prediction error by workload")
    (trace,) = (trace for trace in chart.figure.series if trace.name == "linear")
    figures = of_linear(records)
    assert trace.x == pytest.approx([100 * one.error for one in figures])
    low, high = chart.figure.x.span
    assert low < min(trace.x)
    assert max(trace.x) < high
    rows = [row for row in chart.table.rows if row[0].endswith(", linear")]
    assert [row[3] for row in rows] == [f"{100 * one.error:+.2f}" for one in figures]
    assert sum("nobody: no predictor" in row[0] for row in chart.table.rows) == len(figures)
    assert all(len(row) == len(chart.table.header) for row in chart.table.rows)
    assert any("Rivals" in note for note in chart.notes)
    assert any(remark.startswith("Mean prediction error of linear, a rival: ") for remark in remarks)


@pytest.mark.parametrize("said", [3, [], {"linear": 3}, {"linear": {"reason": 1}}], ids=str)
def test_a_page_of_what_is_no_rival(run, said: object) -> None:
    """A journal that was edited by hand: such a case is named and not shown half."""
    records, journal = run
    odd = [{**record, "detail": {**record["detail"], "predictors": said}} for record in records]
    page = html.render_html(odd, journal, shown)
    assert "Prediction error by workload" not in page
    assert page.count("is not shown: its record is of another version") == len(of_linear(records)) + 1  # the mean error
