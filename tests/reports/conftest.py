"""A whole run's page, read once; and every SVG marked with the figure that it was drawn of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from pytest_npubench.reports.plot_parts import CellGrid, DrawnFigure
from pytest_npubench.store.journal import Journal, read_journal
from pytest_npubench.suites import shown

from .journals import make_plan, measure, write_run
from .page import DRAWN, Element, read

with suppress(ModuleNotFoundError):  # without jinja2 there is no page, and a file that needs one is skipped
    from pytest_npubench.reports import html, svg


@pytest.fixture(scope="session", autouse=True)
def drawn_figures() -> Iterator[None]:
    def draw(figure: DrawnFigure | CellGrid, *, label: str) -> str:
        mark = str(len(DRAWN))
        DRAWN[mark] = figure
        return svg.draw(figure, label=label).replace("<svg ", f'<svg data-drawn="{mark}" ', 1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pytest_npubench.reports.html.draw", draw)
        yield


@dataclass(frozen=True)
class Rendered:
    """A journal, its case records, and the page made of them."""

    journal: Journal
    records: list[Mapping[str, Any]]
    text: str
    page: Element

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """hypothesis shows arguments of a failure: a page of text would hide the others."""
        printer.text("Rendered(...)")


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    """All cases of two campaigns on one device: all green, times as in the table."""
    path = tmp_path_factory.mktemp("run") / "journal.jsonl"
    write_run(path, measure(make_plan()))
    journal = read_journal(path)
    records = [record for record in journal.records if record["record"] == "case"]
    text = html.render_html(records, journal, shown)
    return Rendered(journal=journal, records=records, text=text, page=read(text))
