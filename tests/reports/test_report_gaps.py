"""Records and journals that lack things, or hold what no version of ours writes: the report says so and goes on."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_npubench.reports.drift import drifts
from pytest_npubench.store.journal import Journal, read_journal
from pytest_npubench.store.journal_format import check_record
from pytest_npubench.store.json_text import JsonError, decode
from pytest_npubench.suites.buckets.kinds.prediction import PredictionDetail
from pytest_npubench.suites.buckets.report.prediction import common_limit, judged
from pytest_npubench.verdict.case_record import Cases

from .conftest import Rendered
from .journals import judge, make_fingerprint, make_plan, measure, open_journal, write_rounds, write_run
from .page import NO_JOURNAL, Element, cases_of, figures, page_of, rows, table_of

FORMATS = Path(__file__).parents[2] / "docs" / "formats.md"


def test_no_records_at_all() -> None:
    page = page_of([])
    assert page.one("h1").text == "No cases"
    assert "No case was recorded." in page.text
    assert not page.all("figure")


def test_only_steps_and_profile_cases(tmp_path: Path) -> None:
    write_run(tmp_path / "journal.jsonl", measure(make_plan()))
    journal = read_journal(tmp_path / "journal.jsonl")
    page = page_of([r for r in cases_of(journal) if r["case"].split("/")[1] in ("steps", "profile")], journal)
    assert "Mean prediction error" not in page.all("header")[0].text
    assert "Prediction error by workload" not in figures(page)
    assert "TTFT_b by bucket" in figures(page)


def test_invalid_cases_have_no_times_and_say_why(tmp_path: Path) -> None:
    measurement = measure(make_plan(), failures={"profile/256/1": "out of memory: 3 GiB"})
    write_run(tmp_path / "journal.jsonl", measurement)
    journal = read_journal(tmp_path / "journal.jsonl")
    page = page_of(cases_of(journal), journal)
    row = next(row for row in rows(page.all("table")[0]) if row[0].endswith("bucket256") and row[4] == "invalid")
    assert row[1:4] == ["profile", "–", "–"]
    assert row[5] == "out of memory: 3 GiB"
    assert figures(page)["TTFT_b by bucket"].series[0].x == [128, 512]
    assert table_of(page, "Points that failed")[1] == ["profile/256/1", "0", "out of memory: 3 GiB"]


def test_a_case_that_never_reached_a_device(tmp_path: Path) -> None:
    with open_journal(tmp_path / "journal.jsonl") as writer:
        for judged in judge(measure(make_plan()), fingerprint=None, kinds=("profile",)):
            writer.append({"record": "case", **judged.to_json()})
    journal = read_journal(tmp_path / "journal.jsonl")
    page = page_of(cases_of(journal), journal)
    assert "3 cases of cuda:0 ended before a device was open" in page.all("section")[1].text
    assert "The journal holds no rounds of this campaign." in page.text


def test_a_device_record_that_is_missing(tmp_path: Path) -> None:
    with open_journal(tmp_path / "journal.jsonl") as writer:
        for judged in judge(measure(make_plan()), fingerprint="0123456789ab", kinds=("profile",)):
            writer.append({"record": "case", **judged.to_json()})
    journal = read_journal(tmp_path / "journal.jsonl")
    assert "no device record has the digest 0123456789ab" in page_of(cases_of(journal), journal).all("section")[1].text


def test_one_round_shows_no_drift_and_none_shows_no_chart(tmp_path: Path) -> None:
    measurement = measure(make_plan())
    for num_rounds in (0, 1):
        path = tmp_path / f"{num_rounds}.jsonl"
        with open_journal(path) as writer:
            digest = writer.device(make_fingerprint())
            del measurement.measured.rounds[num_rounds or 3 :]
            if num_rounds:
                write_rounds(writer, measurement, digest)
            for judged in judge(measurement, fingerprint=digest, kinds=("profile",)):
                writer.append({"record": "case", **judged.to_json()})
        assert "Drift from round to round" not in figures(page_of(cases_of(read_journal(path)), read_journal(path)))


def test_points_missing_from_a_round_leave_a_gap() -> None:
    ratios = drifts(
        [{"points": {"a": [1.0, 3.0], "b": [1.0]}}, {"points": {"b": [3.0]}}, {"points": {"a": [6.0], "b": [2.0]}}]
    )
    assert ratios == {"a": (0.5, None, 1.5), "b": (0.5, 1.5, 1.0)}


def test_unknown_metrics_and_kinds_are_shown(run: Rendered) -> None:
    record = copy.deepcopy(dict(run.records[0]))
    record["case"], record["id"] = "later/thing/x", "x"
    record["metrics"] = {"energy": {"unit": "J", "value": 12.345, "better": "lower", "samples": []}}
    page = page_of([record], run.journal)
    assert table_of(page, "All metrics")[1] == ["thing/x", "energy", "12.35 J", "0", "–", "–", "", ""]


def test_a_verdict_of_a_later_version_is_named_and_not_counted(run: Rendered) -> None:
    odd = {**run.records[0], "id": "x", "verdict": {"kind": "postponed", "reason": "next year"}}
    page = page_of([*run.records, odd], run.journal)
    assert [item.text for item in page.all("header")[0].all("li")] == [f"{len(run.records)} passed"]
    assert "x is not shown: its record is of another version ('postponed' is not a valid VerdictKind)" in page.text


def test_what_a_killed_writer_lost_is_said(run: Rendered) -> None:
    journal = Journal(path=Path("j"), sessions=(), records=(), torn=("line 7: 20 bytes without a line end",))
    assert "line 7: 20 bytes without a line end" in page_of(list(run.records), journal).text


def test_the_records_that_the_format_promises_are_enough(tmp_path: Path) -> None:
    (block,) = re.findall(r"```jsonl\n(.*?)```", FORMATS.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "journal.jsonl").write_text(block, encoding="utf-8")
    journal = read_journal(tmp_path / "journal.jsonl")
    page = page_of(cases_of(journal), journal)
    assert page.one("h1").text == "1 case measured, 1 not compared yet"
    assert "NVIDIA H200" in page.text


def test_without_limits_in_the_records_no_band_is_drawn(run: Rendered) -> None:
    records = [{**record, "limits": {}} for record in run.records]
    page = page_of(records, run.journal)
    assert figures(page)["Prediction error by workload"].band is None
    assert figures(page)["Predicted and measured by batch"].wedge is None
    assert "The green band" not in page.text


def test_limits_that_differ_draw_no_band(run: Rendered) -> None:
    records = [{**record, "limits": {"case_error": 0.1 + index}} for index, record in enumerate(run.records)]
    found = judged(Cases.read(records).of("prediction", PredictionDetail))
    assert len(found) == 2
    assert common_limit(found) is None
    assert common_limit(found[:1]) == found[0].limit


JUNK = st.sampled_from(
    [True, -1, 0, 1e299, 1e308, 1e-320, 10**400, float("nan"), "text", "", [], [None, "x"], {}, {"x": None}]
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of everything inside a record."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from _places(inner, (*path, key))


def readable(records: list[Any]) -> list[Any]:
    """Those that the journal's reader lets through."""
    return [record for record in records if _is_read(record)]


def _is_read(record: Any) -> bool:
    try:
        check_record({"record": "case", "session": "s", **decode(json.dumps(record).encode())})
    except JsonError:
        return False
    return True


def check_rows(page: Element, records: list[Any]) -> None:
    """Every case has its row, or is named as one that is not shown."""
    shown_cases = [row[0] for row in rows(page.all("table")[0])[1:]] if records else []
    for record in records:
        name = " ".join(record["id"].split())
        assert any(name in row for row in shown_cases) or f"{name} is not shown" in page.text


JUNK_CHANGES = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 999), st.none() | JUNK), min_size=1, max_size=4)
junk_in_any_place = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@junk_in_any_place
@given(changes=JUNK_CHANGES)
def test_junk_in_any_place_of_a_record_does_not_stop_the_report(
    changes: list[tuple[int, int, object]], run: Rendered
) -> None:
    """Of what the journal's reader lets through; a case that is of no use is named."""
    check_report_of_junk(run.records, changes, run.journal)


def check_report_of_junk(
    made: Sequence[Any], changes: list[tuple[int, int, object]], journal: Journal = NO_JOURNAL
) -> None:
    """The records with some of their values changed, each by the number of its record and place, are still shown."""
    records = json.loads(json.dumps(made))
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
    page = page_of(records, journal)
    check_rows(page, records)
    figures(page)
