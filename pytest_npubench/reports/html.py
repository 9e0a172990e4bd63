"""The HTML report of a run: one file with its charts, their numbers and plotly.js inside, that loads nothing.

It opens without a network and says so to the browser: its content security policy forbids every load. Names and
reasons come from users and devices, so the templates escape all text, and chart labels are escaped once more for
plotly, which reads a few tags itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
from plotly.offline import get_plotlyjs

from pytest_npubench.reports import definitions
from pytest_npubench.reports.campaign_sections import campaign_sections
from pytest_npubench.reports.overview import case_rows, device_table, overview, sessions_up_to
from pytest_npubench.reports.page import ShownBy
from pytest_npubench.store.journal_reader import Journal
from pytest_npubench.verdict.case_record import Cases


def render_html(records: Sequence[Mapping[str, Any]], journal: Journal, shown_by: ShownBy) -> str:
    """The page for these case records (JudgedCase.to_json, or a journal's `case` records) as one HTML text.

    The journal gives what the records refer to: sessions, fingerprints and rounds. What it lacks, or
    what of them cannot be read, is left out and said.
    `shown_by` knows what each suite shows (pytest_npubench.suites.shown).
    """
    cases = Cases.read(records)
    devices, device_remarks = device_table(cases, journal)
    template = _environment().get_template("report.html.jinja")
    page = template.render(
        overview=overview(cases, journal),
        devices=devices,
        device_remarks=device_remarks,
        cases=case_rows(cases),
        campaigns=campaign_sections(cases, journal, sessions_up_to(cases, journal), shown_by),
        definitions=definitions,
        torn=(*journal.remarks, *cases.unread),
        plotly_js=get_plotlyjs(),
    )
    return page.encode("utf-8", errors="replace").decode("utf-8")  # JSON may hold half a surrogate pair, a file not


def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("pytest_npubench.reports", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
