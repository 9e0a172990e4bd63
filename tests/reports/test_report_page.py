"""The page as a file: it loads nothing, takes any text as text, and can be read without seeing the charts."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_npubench.reports import html
from pytest_npubench.store.journal import Journal, read_journal
from pytest_npubench.suites import shown

from .conftest import Rendered
from .journals import judge, make_fingerprint, make_plan, measure, open_journal, write_rounds
from .page import check_svg, figures, page_of, read, rows

NASTY = """<script>alert("1")</script> & <b onclick='x()'>b</b> ${x} {{ 7 * 7 }} %{y} </figure> "quoted\""""


def test_the_page_loads_nothing(run: Rendered) -> None:
    for tag in ("script", "img", "link", "iframe", "object", "embed", "source", "video", "audio", "form", "base"):
        for element in run.page.all(tag):
            addresses = {
                name: element.attributes[name] for name in ("src", "href", "action") if name in element.attributes
            }
            assert all(address.startswith("data:") for address in addresses.values()), (tag, addresses)
    assert all(link.attributes["href"].startswith("#") for link in run.page.all("a"))
    style = run.page.one("style").text
    assert "url(" not in style
    assert "@import" not in style
    (policy,) = (
        meta for meta in run.page.all("meta") if meta.attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.attributes["content"].startswith("default-src 'none'")
    assert "http" not in policy.attributes["content"]


def test_a_page_is_small(run: Rendered) -> None:
    assert len(run.text) < 20_000 + 4_000 * len(run.records) + 12_000 * len(run.page.all("figure"))
    empty = html.render_html([], Journal(path=Path("journal.jsonl"), sessions=(), records=(), torn=()), shown)
    assert len(empty) < 20_000


def test_headings_tables_and_charts_can_be_read_without_seeing(run: Rendered) -> None:
    assert run.page.one("html").attributes["lang"] == "en"
    assert run.page.one("head").one("title").text
    levels = [
        int(level) for level in re.findall(r"<h([1-6])", run.text.split("<script", 1)[0] + run.text.split("<main>")[1])
    ]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    for table in run.page.all("table"):
        assert table.all("caption") or table.attributes["aria-labelledby"]
        assert all(cell.attributes["scope"] in ("col", "row") for cell in table.all("th"))
        assert all(row.all("th") for row in table.all("tr"))
    for figure in run.page.all("figure"):
        (chart,) = (chart for chart in figure.all("svg") if chart.attributes.get("role") == "img")
        assert len(chart.attributes["aria-label"]) > 20
        assert figure.one("table").all("tr")[1:]  # the same numbers as text
    ids = re.findall(r' id="([^"]+)"', run.text.split("<script", 1)[0])
    assert len(ids) == len(set(ids))
    for label in re.findall(r' aria-labelledby="([^"]+)"', run.text):
        assert label in ids


def test_both_colour_schemes_and_small_screens_are_provided_for(run: Rendered) -> None:
    style = run.page.one("style").text
    assert "prefers-color-scheme: dark" in style
    assert "max-width: 760px" in style
    light, dark = (set(re.findall(r"(--[a-z-]+):", block)) for block in re.findall(r":root \{(.*?)\}", style))
    assert light == dark
    assert set(re.findall(r"var\((--[a-z-]+)\)", style)) <= light
    assert set(re.findall(r'color\("(--[a-z-]+)"\)', run.text)) <= light


def _nasty_records(path: Path, text: str) -> tuple[list[dict[str, Any]], Journal]:
    """One run in which the user's and the device's names, and every reason, are this text."""
    plan = make_plan(model=text)
    measurement = measure(make_plan(), failures={"step/64": text})
    measurement = replace(measurement, plan=plan)
    with open_journal(path) as writer:
        digest = writer.device(make_fingerprint(accelerator=text, uuid=text))
        write_rounds(writer, measurement, digest)
        records = [judged.to_json() for judged in judge(measurement, fingerprint=digest, device=text)]
        for record in records:
            _rename(record, text)
            writer.append({"record": "case", **record})
    return records, read_journal(path)


def _rename(record: dict[str, Any], text: str) -> None:
    record["id"] = record["what"] = text
    record["verdict"]["reason"] = text
    if "workload" in record["detail"]:
        record["detail"]["workload"] = text
    record["metrics"][text] = {"unit": text, "value": 1.0, "better": "lower", "samples": [1.0]}


def test_text_from_users_and_devices_stays_text(tmp_path: Path) -> None:
    records, journal = _nasty_records(tmp_path / "journal.jsonl", NASTY)
    text = html.render_html(records, journal, shown)
    page = read(text)
    assert not page.all("b")
    assert len(page.all("script")) == 1
    as_shown = " ".join(NASTY.split())
    for place in (page.all("table")[0], page.all("h2")[-1], page.all("section")[1]):
        assert as_shown in place.text
    assert as_shown in " ".join(heading.text for heading in page.all("summary"))
    failed = next(table for table in page.all("table") if "Points that failed" in table.text)
    assert as_shown in failed.text
    assert "49" not in page.all("table")[0].text
    found = figures(page)
    assert len(found) == 7
    for figure in found.values():
        check_svg(figure)
    (name,) = set(found["Prediction error by workload"].series[0].y)
    assert name.endswith('{y} </figure> "quoted"')


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(min_size=1, max_size=30))
def test_any_text_leaves_the_page_whole(text: str, tmp_path_factory: pytest.TempPathFactory, run: Rendered) -> None:
    records = [json.loads(json.dumps(record)) for record in run.records]
    for record in records:
        _rename(record, text)
    page = read(html.render_html(records, run.journal, shown).encode("utf-8").decode("utf-8"))
    assert len(page.all("figure")) == len(run.page.all("figure"))
    assert len(page.all("script")) == len(run.page.all("script"))
    cells = [cell for cell in page.all("table")[0].all("td") if cell.attributes["class"] == "why"]
    expected = text.encode("utf-8", errors="replace").decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    assert {cell.text for cell in cells} == {""}  # what all say is said once
    said = next(one for one in page.all("section") if one.attributes["aria-labelledby"] == "cases").all("p")[0].text
    assert said == " ".join(f"{len(records)} cases: {expected}".split())


def test_a_column_that_no_case_has_is_left_out(run: Rendered) -> None:
    predicted = {"predicted", "measured", "error %"}
    (header, *_) = rows(run.page.all("table")[0])
    assert predicted < set(header)
    records = [record for record in run.records if record["predicted_s"] is None]
    (header, *body) = rows(page_of(records, run.journal).all("table")[0])
    assert len(body) == len(records)
    assert {"quartile", "verdict"} < set(header)
    assert not predicted & set(header)


def test_half_a_surrogate_pair_can_be_written(tmp_path: Path, run: Rendered) -> None:
    record: Mapping[str, Any] = {**run.records[0], "what": "half \udc80 a pair"}
    (tmp_path / "report.html").write_text(html.render_html([record], run.journal, shown), encoding="utf-8")


def test_campaigns_beyond_the_limit_are_listed_without_charts(run: Rendered, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_npubench.reports.campaign_sections.MAX_WHOLE", 1)
    other = [{**record, "model": "other"} for record in run.records]
    page = page_of([*run.records, *other], run.journal)
    first, second = (one for one in page.all("section") if one.attributes.get("class") == "campaign")
    assert first.all("figure")
    assert not second.all("figure")
    assert "Its charts are left out" in second.text
    rows = {row.attributes["id"] for row in page.all("tr") if "id" in row.attributes}
    assert {link.attributes["href"][1:] for link in second.one("ul").all("a")} <= rows
    assert len(second.one("ul").all("a")) == len(other)
