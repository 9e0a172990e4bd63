"""Reading a report page back with html.parser: text, tables, scripts, and whether its tags are balanced."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from pytest_npubench.reports import html, svg
from pytest_npubench.reports.plot_parts import CellGrid, DrawnFigure, Ends, Place
from pytest_npubench.store.journal import Journal
from pytest_npubench.suites import shown

VOID = frozenset({"meta", "link", "br", "img", "input", "hr"})
DRAWN: dict[str, DrawnFigure | CellGrid] = {}
"""What the pages of this process show, by the mark that conftest has their SVG carry."""

NO_JOURNAL = Journal(path=Path("j"), sessions=(), records=(), torn=())


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    children: list[Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All text inside, runs of white space as one space."""
        parts = [child if isinstance(child, str) else child.text for child in self.children]
        return " ".join(" ".join(parts).split())

    def all(self, tag: str) -> list[Element]:
        found = [self] if self.tag == tag else []
        for child in self.children:
            if isinstance(child, Element):
                found += child.all(tag)
        return found

    def one(self, tag: str) -> Element:
        (found,) = self.all(tag)
        return found


class Reader(HTMLParser):
    """Builds the tree; an end tag that does not close the open element fails."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("root", {})
        self._open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self._open[-1].children.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self._open[-1].tag == tag, f"</{tag}> closes <{self._open[-1].tag}>"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        self._open[-1].children.append(data)

    def finish(self) -> Element:
        self.close()
        assert [element.tag for element in self._open] == ["root"]
        return self.root


def read(text: str) -> Element:
    reader = Reader()
    reader.feed(text)
    return reader.finish()


def page_of(records: Sequence[Any], journal: Journal = NO_JOURNAL) -> Element:
    """The report of these case records."""
    return read(html.render_html(records, journal, shown))


def cases_of(journal: Journal) -> list[Any]:
    return [record for record in journal.records if record["record"] == "case"]


def rows(table: Element) -> list[list[str]]:
    """The cells of each row of a table as text, its header first."""
    return [[cell.text for cell in row.children if isinstance(cell, Element)] for row in table.all("tr")]


def figures(page: Element) -> dict[str, DrawnFigure]:
    """Title of each chart with axes -> what was drawn for it. Of several campaigns' charts of one title, the last."""
    return {title: figure for title, figure in _drawn(page) if isinstance(figure, DrawnFigure)}


def grids(page: Element) -> dict[str, CellGrid]:
    """The same of each grid of cells."""
    return {title: figure for title, figure in _drawn(page) if isinstance(figure, CellGrid)}


def _drawn(page: Element) -> Iterator[tuple[str, DrawnFigure | CellGrid]]:
    for figure in page.all("figure"):
        yield (figure.all("h3") or figure.all("h4"))[0].text, DRAWN[figure.one("svg").attributes["data-drawn"]]


def check_svg(figure: DrawnFigure | CellGrid) -> None:
    """It is XML by itself, and every number in its paths is finite."""
    text = svg.draw(figure, label="a chart")
    ElementTree.fromstring(text)
    assert not re.search(r"\b(nan|inf)\b", " ".join(re.findall(r' (?:d|x|y|width|height)="([^"]*)"', text)))


def whiskers(values: Sequence[Place], ends: Sequence[Ends]) -> list[tuple[float, float]]:
    """How far below and above its value each interval reaches."""
    pairs = zip(values, ends, strict=True)
    return [(float(value) - pair[0], pair[1] - float(value)) for value, pair in pairs if value is not None and pair]


def table_of(page: Element, caption: str) -> list[list[str]]:
    """The rows of the first table with that caption."""
    return next(rows(table) for table in page.all("table") if [c.text for c in table.all("caption")] == [caption])
