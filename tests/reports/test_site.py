"""The site of a history: what its pages say, that hostile names stay text, that foreign files in its folder stay."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime, timezone
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from comparison import made_nights
from store.history.made_journals import case_record, redated, stack

from pytest_npubench.cli.main import main
from pytest_npubench.errors import StoreError
from pytest_npubench.reports.site import CASES, INDEX, MARK, _headline, page_path, site_files
from pytest_npubench.reports.site_folder import write_site
from pytest_npubench.store.history import upload_journal
from pytest_npubench.store.journal import JournalWriter, read_journal

from .browser import CHROMIUM, browser

NOW = datetime(2026, 12, 1, tzinfo=timezone.utc)
CASE = "buckets/profile/h200-tiny-b4-bucket0"
HOSTILE = 'buckets/<script>alert("x")</script>/../../\u202e\u2028</body>&amp;'
NUM_NIGHTS, NUM_OLD, NUM_RED = 14, 8, 3
"""Of the nights, those on the old driver, and those that the gate called regressed before it was accepted."""


class Read(HTMLParser):
    """What a page is made of: its tags with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def write_nights(
    path: Path, *, num_nights: int = NUM_NIGHTS, host: str = "bench-1", cases: tuple[str, ...] = (CASE,)
) -> None:
    """Nights of 2.0 ms on driver 570.86, then of 2.2 ms on 580.12: three that the gate calls regressed, then accepted
    ones."""
    sessions: list[str] = []
    JournalWriter.open(path, host=stack().host, settings={}).close()  # a session without a case
    for night in range(num_nights):
        facts = stack("570.86" if night < NUM_OLD else "580.12", host)
        value = (0.002 if night < NUM_OLD else 0.0022) * (1 + 0.001 * (-1) ** night)
        is_red = NUM_OLD <= night < NUM_OLD + NUM_RED
        verdict = {"kind": "regressed" if is_red else "unchanged", "reason": "<b>so</b>"}
        with JournalWriter.open(path, host=facts.host, settings={}) as journal:
            sessions.append(journal.session)
            since = {"since": sessions[NUM_OLD]} if is_red else {}
            metric = {
                "unit": "s",
                "value": value,
                "better": "lower",
                "samples": [value] * 3,
                "verdict": verdict | since,
            }
            digest = journal.device(facts)
            for case in cases:
                journal.append(case_record(digest, case=case, metrics={"tbt_s": metric}, verdict=verdict))
            journal.append({"record": "end", "exit_status": 0, "counts": {}})
    redated(path, [f"2026-11-{night:02}T02:00:00+00:00" for night in (1, *range(1, num_nights + 1))])


@pytest.fixture
def history(tmp_path: Path) -> Callable[..., str]:
    def make(**options: Any) -> str:
        path, url = tmp_path / "journal.jsonl", str(tmp_path / "history.db")
        write_nights(path, **options)
        upload_journal(url, read_journal(path))
        return url

    return make


def pages(url: str) -> dict[str, str]:
    return dict(site_files(url, None, NOW))


def data_of(text: str) -> Any:
    return json.loads(re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[0])


def test_the_first_page_has_devices_changes_and_cases(history: Callable[..., str]) -> None:
    site = pages(history(cases=(CASE, "scheduling/rates/h200-b")))
    assert list(site) == [
        "style.css",
        "page.js",
        "trend.js",
        page_path(CASE),
        page_path("scheduling/rates/h200-b"),
        INDEX,
    ]
    page = Read(site[INDEX])
    assert [link["href"] for link in page.of("a") if (link["href"] or "").startswith(CASES)].count(page_path(CASE)) == 2
    rows = re.findall(r"<tr><td>(.*?)</td></tr>", site[INDEX], re.DOTALL)
    assert len(rows) == 2
    for part in ("2026-11-09", CASE, "tbt_s", "+10.11\xa0%", "2\xa0ms -&gt; 2.202\xa0ms", "driver 570.86 -&gt; 580.12"):
        assert part in rows[0]
    assert "gate: regressed until 2026-11-12" in rows[0]
    assert "the same, 01234567" in rows[0]
    assert re.search(r'data-verdict="unchanged">1 unchanged</a>', site[INDEX])
    assert "Nothing fails of 2 cases on 1 device" in page.text
    assert "14 sessions with figures, 2026-11-01 to 2026-11-14" in page.text


def test_the_page_of_a_case_has_what_its_chart_draws(history: Callable[..., str]) -> None:
    text = pages(history())[page_path(CASE)]
    (group,) = data_of(text)
    (series,) = group["series"]
    assert group["stack"] == [[NUM_OLD, ["driver 570.86 -> 580.12"]]]
    assert [night[0] for night in group["nights"][1:]] == [86400] * (NUM_NIGHTS - 1)
    assert series["said"] == "u" * NUM_OLD + "r" * NUM_RED + "u" * (NUM_NIGHTS - NUM_OLD - NUM_RED)
    assert [value > 0.0021 for value in series["values"]] == [night >= NUM_OLD for night in range(NUM_NIGHTS)]
    assert [level[:2] for level in series["levels"]] == [[0, NUM_OLD - 1], [NUM_OLD, NUM_NIGHTS - 1]]
    assert [change[0] for change in series["changes"]] == [NUM_OLD]


def test_hostile_names_are_text(history: Callable[..., str]) -> None:
    url = history(cases=(HOSTILE, CASE), host='"><img src=x onerror=alert(1)>\u202e')
    site = pages(url)
    assert re.fullmatch(r"cases/[A-Za-z0-9_-]+-[0-9a-f]{8}\.html", page_path(HOSTILE))
    for name in (INDEX, page_path(HOSTILE)):
        page = Read(site[name])
        assert not page.of("img")
        assert not page.of("b")
        assert all(script.get("src") or script.get("type") == "application/json" for script in page.of("script"))
        assert not any(key.startswith("on") for _, attributes in page.tags for key in attributes)
        assert '<script>alert("x")</script>' in page.text
        assert "script-src 'self' file:;" in site[name]
        assert "\u202e" not in site[name]
    (group,) = data_of(site[page_path(HOSTILE)])
    assert group["hosts"] == ['"><img src=x onerror=alert(1)>\\u202e']


def test_nothing_is_called_good_that_was_held_against_nothing() -> None:
    said, tone = _headline(Counter({"no-baseline": 2, "unchanged": 3}), 1)
    assert (said, tone) == ("Nothing fails of 5 cases on 1 device, 2 not compared yet", "neutral")
    assert _headline(Counter({"unchanged": 3}), 1) == ("Nothing fails of 3 cases on 1 device", "good")
    assert _headline(Counter({"no-baseline": 2, "failed": 1}), 1) == ("1 failed of 3 cases on 1 device", "bad")


@pytest.mark.parametrize("num_nights", [0, 1])
def test_no_night_and_one(num_nights: int, history: Callable[..., str]) -> None:
    site = pages(history(num_nights=num_nights))
    assert ("No case has been measured yet" in site[INDEX]) is (num_nights == 0)
    assert "A change of level is seen once three sessions follow it" in site[INDEX]
    assert len(site) == 4 + num_nights


def test_foreign_files_stay_and_ours_are_replaced(history: Callable[..., str], tmp_path: Path) -> None:
    url, folder = history(), tmp_path / "site"
    (folder / CASES).mkdir(parents=True)
    foreign = [folder / "notes.txt", folder / CASES / "mine.html"]
    for path in foreign:
        path.write_text("mine", encoding="utf-8")
    gone = folder / CASES / "gone.html"
    gone.write_text(f"<!DOCTYPE html>\n<!-- {MARK} -->", encoding="utf-8")
    first = write_site(folder, site_files(url, None, NOW))
    assert (first.index, first.num_cases) == (folder / INDEX, 1)
    assert first.num_bytes == sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) - 8
    assert write_site(folder, site_files(url, None, NOW)) == first
    assert not gone.exists()
    assert [path.read_text(encoding="utf-8") for path in foreign] == ["mine"] * 2


@pytest.mark.parametrize("name", [INDEX, "style.css", page_path(CASE), CASES])
def test_a_foreign_file_in_the_way_is_refused_by_name(name: str, history: Callable[..., str], tmp_path: Path) -> None:
    url, path = history(), tmp_path / "site" / name
    path.parent.mkdir(parents=True)
    path.write_text("mine", encoding="utf-8")
    with pytest.raises((StoreError, OSError)) as caught:
        write_site(tmp_path / "site", site_files(url, None, NOW))
    assert str(path) in str(caught.value)
    assert path.read_text(encoding="utf-8") == "mine"
    assert name != INDEX or [*path.parent.iterdir()] == [path]


def test_what_was_killed_half_way_is_the_old_first_page_and_is_finished(
    history: Callable[..., str], tmp_path: Path
) -> None:
    url, folder = history(), tmp_path / "site"

    def killed() -> Iterator[tuple[str, str]]:
        yield from list(site_files(url, None, NOW))[:-1]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_site(folder, killed())
    assert not (folder / INDEX).exists()
    write_site(folder, site_files(url, None, NOW))
    before = (folder / INDEX).read_bytes()
    with pytest.raises(KeyboardInterrupt):
        write_site(folder, killed())
    assert (folder / INDEX).read_bytes() == before


def test_accepted_sessions_stand_in_the_trend(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal, url, accepted = (str(tmp_path / name) for name in ("journal.jsonl", "history.db", "baselines"))
    sessions = made_nights.write_nights(Path(journal), 4, cases=(CASE,))
    redated(Path(journal), [f"2026-11-0{night + 1}T02:00:00+00:00" for night in range(4)])
    assert main(["history", "upload", journal, "--history", url]) == 0
    for session in sessions[:3]:
        assert main(["baseline", "accept", journal, "--session", session, "--baselines", accepted]) == 0
    capsys.readouterr()
    assert main(["site", url, "-o", str(tmp_path / "site"), "--baselines", accepted, "--json"]) == 0
    written = json.loads(capsys.readouterr().out)
    assert (written["format"], written["num_cases"]) == ("npubench-site-written", 1)
    (group,) = data_of((tmp_path / "site" / page_path(CASE)).read_text(encoding="utf-8"))
    assert [series["accepted"] for series in group["series"]] == [[[0, 1, 2]]]


def damage(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\x5a" * 4096 + content[8192:])


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda path: path.unlink(), "no such file; begin one with: npubench history upload"),
        (lambda path: path.write_text("text"), "is no SQLite database"),
        (damage, "is damaged"),
        (lambda path: execute(path, "UPDATE npubench_history SET version = 99"), "has schema version 99"),
        (lambda path: execute(path, "UPDATE npubench_metrics SET samples = '[1'"), "is damaged"),
        (lambda path: execute(path, "UPDATE npubench_metrics SET \"median\" = 'x'"), "is damaged"),
        (lambda path: execute(path, "UPDATE npubench_sessions SET started_at = '20261101T02'"), "is damaged"),
        (lambda path: path.write_bytes(path.read_bytes().replace(b"CREATE TABLE", b"CREATE TABL\xd0")), "is damaged"),
    ],
)
def test_a_history_that_cannot_be_read_is_one_line_and_no_site(
    spoil: Callable[[Path], object], said: str, history: Callable[..., str], tmp_path: Path, capsys: Any
) -> None:
    spoil(Path(history()))
    assert main(["site", str(tmp_path / "history.db"), "-o", str(tmp_path / "site")]) == 1
    error = capsys.readouterr().err
    assert re.fullmatch(rf"npubench: error: history .*history\.db: .*{said}.*\n", error)
    assert not (tmp_path / "site" / INDEX).exists()


def execute(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute(statement)
        database.commit()


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here")
def test_the_pages_work_in_a_browser_from_a_folder(history: Callable[..., str], tmp_path: Path) -> None:
    url = history(cases=(HOSTILE, CASE), host='"><img src=x onerror=alert(1)>')
    site = write_site(tmp_path / "site", site_files(url, None, NOW))
    with browser(tmp_path) as page:
        for width in (1400, 390):
            page.open(site.index, width=width)
            assert page.value("document.documentElement.scrollWidth") <= width
            page.value("document.querySelector('a[data-cell]').click()")
            assert page.value("document.querySelector('[role=status]').textContent") == "2 of 2 cases"
            page.value("document.querySelector('#filter').focus()")
            page.type("bucket0")
            assert page.value("document.querySelector('[role=status]').textContent") == "1 of 2 cases"
            page.open(site.index.parent / page_path(CASE), width=width)
            assert page.value("document.documentElement.scrollWidth") <= width
            assert page.value("document.querySelector('svg.chart').clientWidth") > width - 100
            page.wait_for("document.querySelectorAll('.series .mark').length", NUM_NIGHTS)
            assert page.value("document.querySelectorAll('.series .mark.bad').length") == NUM_RED
            assert page.value("document.querySelector('text.stack').textContent") == "driver 570.86 → 580.12"
            assert page.value("document.querySelector('text.begins').textContent") == "+10.11 %"
            said = page.value(f"document.querySelectorAll('.series title')[{NUM_OLD}].textContent")
            assert said.startswith("2026-11-09 02:00 ")
            assert said.endswith("2.202 ms, regressed, commit 0123456789ab; driver 570.86 -> 580.12")
            page.value("document.querySelector('details').open = true")
            page.wait_for("document.querySelectorAll('details tbody tr').length", NUM_NIGHTS)
        page.open(site.index.parent / page_path(HOSTILE), width=1400)
        assert page.value("document.querySelector('h1').textContent").startswith('buckets/<script>alert("x")</script>')
        assert page.log == []
