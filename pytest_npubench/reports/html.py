"""The HTML report of a run, and the page of a command: a file with charts as SVG and their numbers, that loads nothing.

It opens without a network and says so to the browser: its content security policy forbids every load. It reads the same
without JavaScript, which adds sorting, filtering and a nearer hover. Names and reasons come from users and devices, so
the templates escape all text, and reports/svg.py that of charts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2

from pytest_npubench.reports import definitions
from pytest_npubench.reports.campaign_sections import MOST_LEARNT, campaign_sections, learnt
from pytest_npubench.reports.overview import case_rows, common_reasons, device_table, overview, sessions_up_to
from pytest_npubench.reports.page import CampaignSection, Chart, RegressionCard, ShownBy, Table
from pytest_npubench.reports.regression import SHOWN, cards, pictured
from pytest_npubench.reports.svg import draw
from pytest_npubench.store.baselines import Baselines
from pytest_npubench.store.journal_reader import Journal
from pytest_npubench.verdict.case_record import Cases

_UNIT = re.compile(r"(?<=\d) (?=(%|[kMGTµmn]?[sBWJ]|[KMGT]iB|[MG]?Hz|min|h|\w+/s)(?![\w-]))")
"""The space between a number and its unit, where no line may end."""


def render_html(
    records: Sequence[Mapping[str, Any]], journal: Journal, shown_by: ShownBy, accepted: Baselines | None = None
) -> str:
    """The page for these case records (JudgedCase.to_json, or a journal's `case` records) as one HTML text.

    The journal gives what the records refer to: sessions, fingerprints and rounds. What it lacks, or
    what of them cannot be read, is left out and said.
    `shown_by` knows what each suite shows (pytest_npubench.suites.shown); `accepted` are the baselines that the cases
    were held against, whose sessions stand beside a failing case.
    """
    cases = Cases.read(records)
    shown_cards = cards(cases, journal, accepted)
    campaigns = campaign_sections(cases, journal, sessions_up_to(cases, journal), shown_by)
    devices, device_remarks = device_table(cases, journal)
    template = environment().get_template("report.html.jinja")
    page = template.render(
        overview=overview(cases, journal, [card.num_sessions for card in shown_cards]),
        cards=shown_cards,
        num_more=sum(record.judgement.verdict.kind in SHOWN for record in cases.records) - len(shown_cards),
        devices=devices,
        device_remarks=device_remarks,
        cases=case_rows(cases, _pictures(shown_cards, campaigns)),
        common=common_reasons(cases),
        learnt=(*pictured(cases, shown_cards), *(() if shown_cards else learnt(campaigns)))[:MOST_LEARNT],
        campaigns=campaigns,
        definitions=definitions,
        torn=(*journal.remarks, *cases.unread),
        draw=draw,
    )
    return page.encode("utf-8", errors="replace").decode("utf-8")  # JSON may hold half a surrogate pair, a file not


def command_page(
    command: str,
    headline: str,
    facts: Sequence[tuple[str, str]],
    pictures: str,
    charts: Sequence[Chart],
    tables: Sequence[Table] = (),
) -> str:
    """Returns the page that a command writes beside what it prints: facts by name, charts under the title `pictures`,
    and the tables that no chart has."""
    template = environment().get_template("command.html.jinja")
    page = template.render(
        command=command, headline=headline, facts=facts, pictures=pictures, charts=charts, tables=tables, draw=draw
    )
    return page.encode("utf-8", errors="replace").decode("utf-8")


def _pictures(shown_cards: Sequence[RegressionCard], campaigns: Sequence[CampaignSection]) -> dict[str, str]:
    """The anchor of each case's row -> that of what shows most of it: its card, its chart or table, else its campaign's
    section."""
    by_row = {row: campaign.pictures.get(row, campaign.anchor) for campaign in campaigns for row, _ in campaign.cases}
    return by_row | {card.row: card.anchor for card in shown_cards}


def environment() -> jinja2.Environment:
    """The environment holds the templates of this package, which escape all text."""
    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("pytest_npubench.reports", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: _UNIT.sub("\u00a0", value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["meaning"] = definitions.of
    return templates
