"""The page in a browser: it sorts and filters its cases, leads from a case to its picture and back, reports no error,
and reads without JavaScript. Chromium does it without a driver: a script at the end of the page acts and notes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from .conftest import Rendered
from .page import read, rows

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here")
ACT = """<pre id="noted"></pre><script>
addEventListener("load", async () => {
  const noted = {}, ids = () => [...document.querySelectorAll("table.cases tbody tr")].filter((row) => !row.hidden)
    .map((row) => row.querySelector(".id").textContent);
  const wait = () => new Promise((done) => setTimeout(done, 20));
  const head = document.querySelectorAll("table.cases thead button")[2];
  const column = () => [...document.querySelectorAll("table.cases tbody tr")].map((row) => row.cells[2].textContent);
  noted.given = ids();
  document.querySelector("table.cases tbody tr:last-child").cells[2].textContent = "1.5 s";  // among milliseconds
  head.click();
  noted.ascending = column();
  noted.said = head.parentNode.getAttribute("aria-sort");
  head.click();
  noted.descending = column();
  const search = document.getElementById("filter");
  search.value = "bucket128";
  search.dispatchEvent(new Event("input"));
  noted.filtered = ids();
  noted.status = document.querySelector("[role=status]").textContent;
  const row = document.querySelector("table.cases tbody tr:not([hidden])");
  row.querySelector("a").click();
  await wait();
  noted.picture = document.querySelector(`section.campaign figure > h3${location.hash}`)?.textContent;
  noted.charts = document.querySelectorAll("section.campaign svg.chart").length;
  const other = [...document.querySelectorAll("section.campaign ul.links a")]
    .find((link) => document.getElementById(link.hash.slice(1)).hidden);
  other.click();
  await wait();
  noted.back = document.getElementById(other.hash.slice(1)).hidden === false;
  const chart = document.querySelector("svg.chart"), mark = chart.querySelector(".series title").parentNode;
  chart.scrollIntoView();
  await wait();
  const box = mark.getBoundingClientRect();
  const at = { clientX: box.left + box.width / 2, clientY: box.top + box.height / 2 };
  chart.dispatchEvent(new PointerEvent("pointerenter", at));
  chart.dispatchEvent(new PointerEvent("pointermove", at));
  noted.hover = document.getElementById("hover").textContent;
  document.body.style.width = "390px";  // a window without a head has at least 500
  noted.wide = document.body.scrollWidth > 390;
  document.getElementById("noted").textContent = JSON.stringify(noted);
});
</script>"""


def dumped(path: Path, folder: Path, *options: str) -> tuple[str, str]:
    """The page as it stands after its scripts, and what the browser logged."""
    assert CHROMIUM is not None
    own = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    logged = ["--enable-logging=stderr", "--virtual-time-budget=5000", f"--user-data-dir={folder / 'profile'}"]
    command = [CHROMIUM, *own, *logged, *options, "--dump-dom", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def acted(run: Rendered, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    folder = tmp_path_factory.mktemp("browser")
    path = folder / "report.html"
    path.write_text(run.text.replace("</body>", f"{ACT}</body>"), encoding="utf-8")
    text, log = dumped(path, folder, "--window-size=390,800")
    found = re.search(r'<pre id="noted">(.*?)</pre>', text, re.DOTALL)
    assert found is not None
    assert found[1], log
    noted: dict[str, Any] = json.loads(unescape(found[1]))
    return noted, log


def seconds(text: str) -> float:
    number, unit = text.replace(",", "").split()
    return float(number) * {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}[unit]


def test_cases_sort_and_filter(acted: tuple[dict[str, Any], str], run: Rendered) -> None:
    noted, _ = acted
    measured = [seconds(text) for text in noted["ascending"] if text != "–"]
    assert len({text.split()[1] for text in noted["ascending"] if text != "–"}) > 1  # times of several units
    assert measured == sorted(measured)
    assert noted["descending"] == noted["ascending"][::-1]
    assert noted["said"] == "ascending"
    assert noted["filtered"]
    assert all("bucket128" in name for name in noted["filtered"])
    assert noted["status"] == f"{len(noted['filtered'])} of {len(run.records)} cases"


def test_a_case_leads_to_its_picture_and_back(acted: tuple[dict[str, Any], str]) -> None:
    noted, _ = acted
    assert noted["picture"] == "Latency steps by length"  # of the first case of bucket128, a steps case
    assert noted["charts"]
    assert noted["back"]  # a row that the filter had hidden


def test_a_mark_says_its_numbers_and_nothing_is_wider_than_a_phone(acted: tuple[dict[str, Any], str]) -> None:
    noted, log = acted
    assert re.search(r"tokens: [\d.]+ ms", noted["hover"])
    assert not noted["wide"]
    assert "CONSOLE" not in log


def test_without_scripts_all_of_it_stands_there(run: Rendered, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(run.text.replace("script-src 'unsafe-inline'", "script-src 'none'"), encoding="utf-8")
    text, _ = dumped(path, tmp_path)
    page = read(text)
    assert len(page.all("svg")) == len(run.page.all("svg")) > 0
    assert rows(page.all("table")[0]) == rows(run.page.all("table")[0])
    assert not page.all("button")
