"""A failing case's card: by how much it changed, against what, and its samples over those of the accepted sessions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_npubench.reports import html, svg
from pytest_npubench.reports.plot_parts import Shape
from pytest_npubench.store.accepted_session import AcceptedSession, KeptSamples
from pytest_npubench.store.baselines import Baselines
from pytest_npubench.suites import shown

from .conftest import Rendered
from .page import DRAWN, Element, figures, page_of, read

BEFORE, AFTER = (0.010, 0.0101, 0.0102, 0.0103, 0.0104, 0.0105), (0.0120, 0.0121, 0.0122, 0.0123, 0.0124, 0.0125)
CASE = "buckets/profile/cpu-tiny-llama-b1-bucket128"
NAMES = [f"s{night}" for night in range(8)]


@dataclass(frozen=True)
class Accepted(Baselines):
    """Eight accepted sessions of every case, on one level."""

    def histories(self, case: str, *_: Any, **__: Any) -> tuple[tuple[AcceptedSession, ...], ...]:
        kept = KeptSamples(processes=(BEFORE,), num_measured=(len(BEFORE),))
        return (
            tuple(
                AcceptedSession(
                    session=NAMES[night],
                    accepted_at=f"2026-11-{night + 1:02d}T02:00:00+00:00",
                    git_revision="a" * 12,
                    anchor=False,
                    metrics={"ttft_s": kept},
                )
                for night in range(8)
            ),
        )

    def mismatches(self, *_: Any, **__: Any) -> tuple[str, ...]:
        return ("driver 570.86 -> 580.12",)


def page_text(run: Rendered, samples: tuple[float, ...] = AFTER, **verdict: Any) -> str:
    """The run with one case that regressed by 19 %."""
    (regressed,) = (record for record in run.records if record["case"] == CASE)
    said = {"kind": "regressed", "reason": "slower", "ratio": 1.19, "interval": [1.17, 1.21], "mde": 0.02, **verdict}
    metric = {**regressed["metrics"]["ttft_s"], "samples": samples, "value": 0.0122, "verdict": said, "margin": 0.01}
    metrics = {**regressed["metrics"], "ttft_s": metric}
    changed = {**regressed, "verdict": said, "metrics": metrics}
    records = [changed if record is regressed else record for record in run.records]
    return html.render_html(records, run.journal, shown, Accepted(directory=Path("b"), files=()))


@pytest.fixture(scope="module")
def page(run: Rendered) -> Element:
    return read(page_text(run))


def card_of(page: Element) -> Element:
    return page.one("article")


def test_a_card_says_by_how_much_and_against_what(page: Element) -> None:
    text = card_of(page).text
    assert card_of(page).all("h3")[0].text.startswith(CASE)
    # the judged figure is the lower quartile: 12.125 ms tonight, 10.125 ms before
    assert "ttft_s 12.12 ms, was 10.12 ms in 8 accepted sessions" in text
    assert "+19.0 % (95 % +17.0 to +21.0 %); a change up to 1 % does not matter" in text
    assert "driver 570.86 -> 580.12" in text


def test_the_first_screen_names_it_and_leads_there(page: Element) -> None:
    header = page.all("header")[0]
    assert header.one("h1").text == "1 of 9 cases failing"
    (link,) = header.one("ol").all("a")
    assert link.attributes["href"] == f"#{card_of(page).all('h3')[0].attributes['id']}"
    assert "8 of each failing case" in header.text
    assert "No canary kernel was measured" in header.text


def test_old_and_new_are_drawn_over_each_other(page: Element) -> None:
    found = figures(page)
    old, new = found["Distribution of ttft_s, ms"].series
    assert (old.name, new.name) == ("accepted sessions", "this session")
    assert old.shape is new.shape is Shape.AREA
    for series, samples in ((old, BEFORE), (new, AFTER)):
        assert sum(series.y) == pytest.approx(1)
        peak = series.x[list(series.y).index(max(series.y))]
        assert min(samples) * 1e3 <= peak <= max(samples) * 1e3
    nights, tonight = found["ttft_s, ms over the sessions"].series
    assert nights.y == pytest.approx([10.25] * 8)
    assert (tonight.x, tonight.y) == ([9], [pytest.approx(12.25)])
    assert "<path" in svg.draw(found["Distribution of ttft_s, ms"], label="d")


def test_its_row_and_its_card_lead_to_each_other(page: Element) -> None:
    (row,) = (row for row in page.all("tr") if row.attributes.get("class") == "bad")
    assert row.all("a")[0].attributes["href"] == f"#{card_of(page).all('h3')[0].attributes['id']}"
    assert f"#{row.attributes['id']}" in {link.attributes["href"] for link in card_of(page).all("a")}


def test_nothing_is_called_green_that_was_judged_against_nothing(run: Rendered) -> None:
    said = {"kind": "no-baseline", "reason": "0 accepted sessions", "ratio": None, "interval": None, "mde": None}
    records = [{**record, "verdict": said} for record in run.records]
    (heading,) = page_of(records, run.journal).all("h1")
    assert heading.text == f"{len(records)} cases measured, {len(records)} not compared yet"
    assert heading.attributes["class"] == "neutral"


@pytest.mark.parametrize(
    ("since", "words", "first"),
    [
        ("20261106T020000-0badcafe", "since 2026-11-06, 4 sessions; a change up to", 5.5),
        (None, "+21.0 %); a change up to", 8.5),
    ],
)
def test_a_change_says_since_when(
    run: Rendered, monkeypatch: pytest.MonkeyPatch, since: str | None, words: str, first: float
) -> None:
    names = [f"202611{night + 1:02d}T020000-0badcafe" for night in range(8)]
    monkeypatch.setattr(f"{__name__}.NAMES", names)
    page = read(page_text(run, since=since))
    assert words in card_of(page).all("p")[0].text
    header = page.all("header")[0]
    assert words in header.one("ol").text
    (picture,) = header.all("svg")  # the nights, on the first screen too
    nights = DRAWN[picture.attributes["data-drawn"]]
    assert nights == figures(page)["ttft_s, ms over the sessions"]
    assert nights.verticals == (first,)


def test_a_change_beyond_x3_is_drawn_on_logarithmic_axes(run: Rendered) -> None:
    found = figures(read(page_text(run, tuple(20 * value for value in AFTER), ratio=23.0, interval=[22.0, 24.0])))
    distribution, nights = found["Distribution of ttft_s, ms"], found["ttft_s, ms over the sessions"]
    assert distribution.x.log
    assert nights.y.log
    for series, samples in zip(distribution.series, (BEFORE, [20 * value for value in AFTER]), strict=True):
        peak = series.x[list(series.y).index(max(series.y))]
        assert min(samples) * 990 <= peak <= max(samples) * 1010


def test_no_curve_lies_below_zero(run: Rendered) -> None:
    wide = (0.0001, 0.0002, 0.02, 0.03, 0.04, 0.05)
    found = figures(read(page_text(run, wide)))
    assert all(min(series.x) >= 0 for series in found["Distribution of ttft_s, ms"].series)
