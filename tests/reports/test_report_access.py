"""The page for whoever has no mouse, no large screen, no colour, no script or a printer: a real browser, real keys."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from .browser import CHROMIUM, Page, browser
from .conftest import Rendered
from .test_regression_cards import page_text

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here")
WIDE, PHONE = 1400, 390
FOCUSED = "(document.activeElement.textContent || document.activeElement.id).trim()"
MOST_TABS = 60
# Beyond the window's edge, but for what scrolls in a box of its own and what only screen readers get.
TOO_WIDE = """[...document.querySelectorAll("body *")]
  .filter((one) => !one.closest(".scroll, svg, thead, .skip, #hover"))
  .filter((one) => one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.outerHTML.slice(0, 80))"""
# WCAG 2.2, 1.4.3: the ratio of luminances of text and ground, 4.5 or more, 3 for large text.
CONTRAST = """(() => {
  const luminance = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, place) => sum + v * [0.2126, 0.7152, 0.0722][place], 0);
  const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
  const ground = (one) => {
    for (let at = one; at; at = at.parentElement) {
      const found = numbers(getComputedStyle(at).backgroundColor);
      if (found.length === 3 || found[3] === 1) return found.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const poor = new Set();
  for (const one of document.querySelectorAll("body *")) {
    const own = [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || ["SCRIPT", "STYLE", "TITLE", "title", "desc"].includes(one.tagName) || !one.checkVisibility()) continue;
    const style = getComputedStyle(one), text = one.closest("svg") ? style.fill : style.color;
    const [light, dark] = [luminance(numbers(text)), luminance(ground(one))].sort((a, b) => b - a);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    const ratio = (light + 0.05) / (dark + 0.05);
    const what = `${one.tagName} ${one.textContent.trim().slice(0, 30)}`;
    if (ratio < (large ? 3 : 4.5)) poor.add(`${ratio.toFixed(2)} ${what}`);
  }
  return [...poor];
})()"""


LETTERS_PX = """(() => {
  const sizes = [...document.querySelectorAll("svg.chart text:not([style])")]  // a name that is too long is smaller
    .map((one) => one.getScreenCTM().a * parseFloat(getComputedStyle(one).fontSize));
  return [Math.min(...sizes), Math.max(...sizes)];
})()"""


@pytest.fixture(scope="module")
def text(run: Rendered) -> str:
    return page_text(run)


@pytest.fixture(scope="module")
def path(text: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("access") / "report.html"
    found.write_text(text, encoding="utf-8")
    return found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("chromium")) as found:
        yield found


def tab_to(page: Page, what: str) -> None:
    """By the tab key alone, as often as it takes. What has the focus can be seen to have it."""
    for _ in range(MOST_TABS):
        page.press("Tab")
        outline = page.value("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", page.value("document.activeElement.outerHTML")
        if re.fullmatch(what, page.value(FOCUSED)):
            return
    raise AssertionError(f"{MOST_TABS} tabs and no {what}")


def test_everything_is_reached_by_keys_alone(page: Page, path: Path) -> None:
    page.open(path, width=WIDE)
    page.press("Tab")
    assert page.value(FOCUSED) == "Skip to the cases"
    assert page.value("document.activeElement.getBoundingClientRect().left") >= 0
    page.press("Enter")
    assert page.value("location.hash") == "#cases"
    tab_to(page, "filter")
    page.type("bucket128")
    shown = "[...document.querySelectorAll('table.cases tbody tr')].filter((row) => !row.hidden).length"
    number = page.value(shown)
    assert 0 < number < page.value("document.querySelectorAll('table.cases tbody tr').length")
    assert page.value("document.querySelector('[role=status]').textContent").startswith(f"{number} of ")
    tab_to(page, "measured")
    for said in ("ascending", "descending"):
        page.press("Enter" if said == "ascending" else " ")
        assert page.value("document.activeElement.closest('th').getAttribute('aria-sort')") == said
    tab_to(page, ".*bucket128.*")
    row = page.value("document.activeElement.closest('tr').id")
    page.press("Enter")
    target = page.value("location.hash")
    assert target not in ("", "#cases")
    tab_to(page, ".*bucket128.*|Back to its row")
    page.press("Enter")
    assert page.value("location.hash") == f"#{row}"
    assert page.log == []


def test_a_definition_is_had_by_focus(page: Page, path: Path) -> None:
    page.open(path, width=WIDE)
    page.value("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    said = page.value(
        "(() => { const head = document.querySelector('.data th[title]');"
        " (head.querySelector('button') || head).focus();"
        " return [head.title, getComputedStyle(head, '::after').content]; })()"
    )
    assert said[0]
    assert said[0] in said[1].replace('\\"', '"')


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no scripts"])
def test_a_screen_reader_finds_its_way(page: Page, path: Path, scripts: bool) -> None:
    page.open(path, width=WIDE, scripts=scripts)
    levels = page.value("[...document.querySelectorAll('h1, h2, h3, h4')].map((one) => +one.tagName[1])")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(below <= above + 1 for above, below in pairwise(levels)), levels
    wrong: dict[str, Any] = page.value(
        """({
        ids: (() => { const all = [...document.querySelectorAll("[id]")].map((one) => one.id);
          return all.filter((one, place) => all.indexOf(one) !== place); })(),
        labels: [...document.querySelectorAll("[aria-labelledby]")].map((one) => one.getAttribute("aria-labelledby"))
          .filter((id) => !document.getElementById(id)?.textContent.trim()),
        links: [...document.querySelectorAll("a[href^='#']")].map((one) => one.hash.slice(1))
          .filter((id) => !document.getElementById(id)),
        charts: [...document.querySelectorAll("svg.chart")].filter((one) => one.getAttribute("role") !== "img"
          || !(one.getAttribute("aria-label") || one.querySelector(":scope > title")?.textContent)).length,
        heads: [...document.querySelectorAll("th")].filter((one) => !one.scope).length,
        controls: [...document.querySelectorAll("input, select")].filter((one) => !one.labels.length).length,
        buttons: [...document.querySelectorAll("button")].filter((one) => !one.textContent.trim()).length,
        })"""
    )
    assert wrong == {"ids": [], "labels": [], "links": [], "charts": 0, "heads": 0, "controls": 0, "buttons": 0}
    landmarks = page.value("['main', 'header', '[lang]', 'title'].map((one) => document.querySelectorAll(one).length)")
    assert landmarks == [1, 1, 1, 1] or landmarks[:3] == [1, 1, 1]
    assert page.value("document.querySelectorAll('button').length > 0") is scripts


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [WIDE, PHONE])
def test_text_stands_out_and_nothing_is_wider_than_the_window(page: Page, path: Path, width: int, scheme: str) -> None:
    page.open(path, width=width, scheme=scheme)
    assert page.value("innerWidth") == width
    assert page.value("document.documentElement.scrollWidth") <= width
    assert page.value(TOO_WIDE) == []
    assert page.value(CONTRAST) == []
    smallest, largest = page.value(LETTERS_PX)
    assert 12 <= smallest <= largest <= 15.01  # as the page's smallest and its own text
    assert not re.search(r"\d (%|ms\b)", page.value("document.body.innerText"))  # no line ends before a unit


def test_paper_has_all_of_it_in_black_on_white(page: Page, path: Path) -> None:
    """Whatever colours the screen had. What is folded stays off: it is the numbers of a chart, or a list of links."""
    page.open(path, width=WIDE, scheme="dark", media="print")
    assert page.value("getComputedStyle(document.documentElement).getPropertyValue('--card')").strip() == "#ffffff"
    assert page.value(CONTRAST) == []
    assert page.value("getComputedStyle(document.querySelector('.tools')).display") == "none"
    shown = page.value("[...document.querySelectorAll('details')].map((one) => [one.open, one.checkVisibility()])")
    assert shown
    assert all(is_open == is_shown for is_open, is_shown in shown)
    clipped = page.value(
        "[...document.querySelectorAll('.scroll')]"
        ".filter((one) => getComputedStyle(one).overflowX !== 'visible').length"
    )
    assert clipped == 0
    assert page.pdf().startswith(b"%PDF")
    assert json.dumps(page.log) == "[]"
