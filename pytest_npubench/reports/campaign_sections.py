"""One section of the page for each campaign: a suite's cases of one hardware file, model and batch size on a device."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from pytest_npubench.campaign.visits import Round
from pytest_npubench.reports import number_text
from pytest_npubench.reports.build import Columns, chart, marks, table
from pytest_npubench.reports.detail_parts import detail_parts
from pytest_npubench.reports.drift import campaign_rounds, drift_chart
from pytest_npubench.reports.lanes import Lane, plain_lanes
from pytest_npubench.reports.overview import row_anchor
from pytest_npubench.reports.page import CampaignSection, Chart, Learnt, Parts, Rounds, ShownBy, Table
from pytest_npubench.reports.plot_parts import BLUE, ORANGE, category_axis, label, spread_axis
from pytest_npubench.reports.run_rows import FIGURE, RunRow, every_metric
from pytest_npubench.store.journal_reader import Journal
from pytest_npubench.verdict.case_record import CaseRecord, Cases
from pytest_npubench.verdict.result import Metric

OWN = "One mark a sample of each callable, on a logarithmic axis; the open diamond is the median."
MAX_OWN, MAX_SAMPLES = 100, 60
MOST_LEARNT = 4
MAX_WHOLE = 100
"""Campaigns with charts and metrics: 10,000 cases of 1,000 campaigns stay below 15 MB."""


def campaign_sections(
    cases: Cases, journal: Journal, sessions: Collection[str], shown_by: ShownBy
) -> tuple[CampaignSection, ...]:
    """Sections follow the first record of each. `sessions` are those whose rounds may be shown."""
    rows: dict[tuple[object, ...], list[tuple[str, str]]] = {}
    for index, record in enumerate(cases.records):
        rows.setdefault(_key(record), []).append((row_anchor(index), f"{record.kind}/{record.id}"))
    groups = list(cases.by(_key).items())
    by_failing = sorted(groups, key=lambda group: not any(one.judgement.verdict.failing for one in group[1].records))
    whole = {key for key, _ in by_failing[:MAX_WHOLE]}
    sections = []
    for index, (key, group) in enumerate(groups, start=1):
        section = (
            _section(f"campaign-{index}", group, journal, sessions, shown_by)
            if key in whole
            else _left_out(index, group)
        )
        pictures = _pictures(section, [row for row, _ in rows[key]], group)
        shown = _shown(section, rows[key], group)
        sections.append(replace(section, cases=tuple(rows[key]), pictures=pictures, shown=shown))
    return (*_across(cases, shown_by), *sections)


def learnt(campaigns: Sequence[CampaignSection]) -> tuple[Learnt, ...]:
    """The first picture that answers each question, MOST_LEARNT at most."""
    first: dict[str, Learnt] = {}
    for campaign in campaigns:
        for item in campaign.charts:
            if item.answer:
                shown = Learnt(chart=item, campaign=campaign.title, anchor=campaign.anchor_of(item))
                first.setdefault(item.title, shown)
    return tuple(first.values())[:MOST_LEARNT]


def _pictures(section: CampaignSection, rows: Sequence[str], cases: Cases) -> dict[str, str]:
    """Maps each row whose case a chart or a table of the section shows to the anchor of the first that does."""
    anchors: dict[str, str] = {}
    for part in section.parts:
        for name in part.shows:
            anchors.setdefault(name, section.anchor_of(part))
    anchored = zip(rows, (anchors.get(record.key, anchors.get(record.kind)) for record in cases.records), strict=True)
    return {row: anchor for row, anchor in anchored if anchor is not None}


def _shown(
    section: CampaignSection, rows: Sequence[tuple[str, str]], cases: Cases
) -> dict[str, tuple[tuple[str, str], ...]]:
    """The anchor of each chart and table that is about some cases -> the anchors of their rows, and their ids."""
    by_name: dict[str, list[tuple[str, str]]] = {}
    for row, record in zip(rows, cases.records, strict=True):
        for name in (record.key, record.kind):
            by_name.setdefault(name, []).append(row)
    shows = {section.anchor_of(part): part.shows for part in section.parts}
    rows_of = {anchor: [row for name in names for row in by_name.get(name, ())] for anchor, names in shows.items()}
    return {anchor: tuple(dict.fromkeys(shown_rows)) for anchor, shown_rows in rows_of.items() if shown_rows}


def _across(cases: Cases, shown_by: ShownBy) -> list[CampaignSection]:
    """A section for each model on a device that was measured at several batch sizes, where its suite draws them."""
    sections: list[CampaignSection] = []
    for (suite, hardware, model, device), batches in cases.by(_over_batches).items():
        if len({record.batch_size for record in batches.records}) > 1 and (charts := shown_by(suite).across(batches)):
            anchor, title = f"across-{len(sections) + 1}", f"{hardware}: {model}, all batch sizes"
            sections.append(
                CampaignSection(
                    anchor=anchor, title=title, device=device, remarks=(), charts=tuple(charts), tables=(), metrics=None
                )
            )
        if len(sections) == MAX_WHOLE:
            break
    return sections


def _over_batches(record: CaseRecord[Any]) -> tuple[str, str, str, str]:
    return record.suite, record.hardware, record.model, record.device


def _left_out(index: int, cases: Cases) -> CampaignSection:
    """A page with very many campaigns leaves charts out, so that it still opens at once."""
    first = cases.records[0]
    return CampaignSection(
        anchor=f"campaign-{index}",
        title=f"{first.hardware}: {first.model}, batch {first.batch_size}",
        device=first.device,
        remarks=(f"Its charts are left out: the page shows those of {MAX_WHOLE} campaigns, failing ones first.",),
        charts=(),
        tables=(),
        metrics=None,
    )


def metrics_table(cases: Cases) -> Table | None:
    """Every metric of every case with its own verdict, also those that no chart knows."""
    rows = [(f"{record.kind}/{record.id}", *found) for record in cases.records for found in every_metric(record)]
    columns: Columns[tuple[str, Metric, RunRow | None]] = (
        ("case", lambda row: row[0]),
        ("metric", lambda row: row[1].name),
        ("value", lambda row: _figures(row[1])[0]),
        ("samples", lambda row: str(len(row[1].value_samples))),
        ("lowest", lambda row: _figures(row[1])[1]),
        ("highest", lambda row: _figures(row[1])[2]),
        ("change", lambda row: row[2].change_text if row[2] else ""),
        ("verdict", lambda row: row[2].kind if row[2] else FIGURE if row[1].gate == "none" else ""),
    )
    return table("All metrics", columns, rows) if rows else None


def _key(record: CaseRecord[Any]) -> tuple[object, ...]:
    return record.suite, record.hardware, record.model, record.batch_size, record.device


def _section(
    anchor: str, cases: Cases, journal: Journal, sessions: Collection[str], shown_by: ShownBy
) -> CampaignSection:
    first = cases.records[0]
    shown = shown_by(first.suite)
    fingerprint = next((record.fingerprint for record in cases.records if record.fingerprint), None)
    keys = dict.fromkeys(record.campaign for record in cases.records if record.campaign)
    campaigns = [campaign_rounds(journal, campaign, fingerprint, sessions) for campaign in keys]
    rounds = [record for own in campaigns for record in own]
    own_callables = all(record.kind == "callable" for record in cases.records)
    charts, tables, remarks = shown.parts(cases, rounds)
    return CampaignSection(
        anchor=anchor,
        title=f"{first.hardware}: {'own callables' if own_callables else shown.heading(first)}",
        device=first.device,
        remarks=(*remarks, *dict.fromkeys(cases.unread), *_round_remarks(campaigns, own_callables)),
        charts=(*charts, *own_charts(cases)) if own_callables else charts,
        tables=tuple(item for item in (*tables, _failures(rounds)) if item is not None),
        metrics=metrics_table(cases),
    )


def own_charts(cases: Cases) -> tuple[Chart, ...]:
    """Every sample of callables that were timed, a row each; of many samples an even choice in their order."""
    timed = [
        (label(record.id), [value for value in metric.samples if value > 0])
        for record in cases.records[:MAX_OWN]
        for metric in record.judgement.metrics
        if metric.unit == "s" and metric.samples
    ]
    rows = [
        (name, values[:: -(-len(values) // MAX_SAMPLES)], statistics.median(values)) for name, values in timed if values
    ]
    if not rows:
        return ()
    unit = number_text.scale("s", statistics.geometric_mean(middle_s for _, _, middle_s in rows))
    hover = f"{{y}}: {{x:.4g}} {unit.name}"
    every = [value * unit.factor for _, values, _ in rows for value in values]
    samples = replace(
        marks("sample", every, [name for name, values, _ in rows for _ in values], hover, color=BLUE, size=6),
        opacity=0.4,
    )
    middle = marks(
        "median",
        [middle_s * unit.factor for _, _, middle_s in rows],
        [name for name, _, _ in rows],
        hover,
        color=ORANGE,
        symbol="diamond-open",
        size=11,
    )
    return (
        chart(
            "Samples of own callables",
            f"Samples of {len(rows)} callables, from {number_text.plain(min(every))} to "
            f"{number_text.plain(max(every))} {unit.name}.",
            (OWN,),
            [samples, middle],
            (spread_axis(unit.name, every), category_axis([name for name, _, _ in rows])),
            table(
                "Samples of own callables",
                (
                    ("callable", lambda row: row[0]),
                    ("median", lambda row: _own_times(row)[0]),
                    ("lowest", lambda row: _own_times(row)[1]),
                    ("highest", lambda row: _own_times(row)[2]),
                ),
                rows,
            ),
        ),
    )


def _own_times(row: tuple[str, Sequence[float], float]) -> list[str]:
    """Median, lowest and highest sample of a callable, in one unit."""
    return number_text.figures((row[2], min(row[1]), max(row[1])), "s")


def plain_parts(cases: Cases, rounds: Rounds) -> Parts:
    """What the cases say beyond their verdicts and the drift of their points, where a suite draws no pictures."""
    charts, tables = detail_parts(cases)
    drift = drift_chart(rounds)
    return (*charts, *(() if drift is None else (drift,))), tuple(tables), ()


class PlainShown:
    """What is shown of cases whose suite is not here: what every campaign has."""

    def parts(self, cases: Cases, rounds: Rounds) -> Parts:
        return plain_parts(cases, rounds)

    def lanes(self, points: Round) -> Iterable[Lane]:
        return plain_lanes(points)

    def lines(self, cases: Cases) -> Sequence[str]:
        return ()

    def across(self, cases: Cases) -> Sequence[Chart]:
        return ()

    def heading(self, record: CaseRecord[Any]) -> str:
        return f"{record.model}, batch {record.batch_size}"


def sentences(lines: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{line[0].upper()}{line[1:]}." for line in lines)


def _round_remarks(campaigns: Sequence[Rounds], own_callables: bool) -> list[str]:
    rounds = [record for own in campaigns for record in own]
    if not rounds:
        return [] if own_callables else ["The journal holds no rounds of this campaign."]
    seconds = [record["duration_s"] for record in rounds if record.get("duration_s") is not None]
    spent = f" in {number_text.duration(sum(seconds))}" if seconds else ""
    late = max(record.get("num_late_compiles") or 0 for record in rounds)
    num_campaigns = sum(bool(own) for own in campaigns)
    among = f" of {num_campaigns} campaigns" if num_campaigns > 1 else ""
    remarks = [f"{len(rounds)} rounds{among}{spent}."]
    if any(own and own[-1].get("complete") is False for own in campaigns):
        remarks.append("The campaign ended before it had enough rounds.")
    if late:
        remarks.append(f"{late:.0f} compiles happened while rounds ran, so samples may hold compile time.")
    return remarks


def _failures(rounds: Rounds) -> Table | None:
    """The points that failed, with the rounds in which they did for one reason."""
    rounds_of: dict[tuple[str, str], list[str]] = {}
    for record in rounds:
        for name, reason in (record.get("failures") or {}).items():
            rounds_of.setdefault((name, reason), []).append(str(record["round"]))
    columns: Columns[tuple[str, str]] = (
        ("point", lambda row: row[0]),
        ("round", lambda row: ", ".join(rounds_of[row])),
        ("reason", lambda row: row[1]),
    )
    return table("Points that failed", columns, rounds_of) if rounds_of else None


def _figures(metric: Metric) -> list[str]:
    """Returns the metric's value, lowest and highest sample, in one unit; fractions as percent."""
    values = (metric.value, min(metric.value_samples, default=None), max(metric.value_samples, default=None))
    if metric.unit == "" and metric.name.endswith(("fraction", "regret", "prediction_error")):
        return number_text.figures([None if value is None else 100 * value for value in values], "%")
    return number_text.figures(values, metric.unit)
