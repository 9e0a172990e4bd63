"""One section of the page for each campaign: a suite's cases of one hardware file, model and batch size on a device."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from pytest_npubench.campaign.visits import Round
from pytest_npubench.reports import number_text
from pytest_npubench.reports.build import Columns, table
from pytest_npubench.reports.drift import campaign_rounds, drift_chart
from pytest_npubench.reports.lanes import Lane, plain_lanes
from pytest_npubench.reports.page import CampaignSection, Parts, Rounds, ShownBy, Table
from pytest_npubench.store.journal_reader import Journal
from pytest_npubench.verdict.case_record import CaseRecord, Cases
from pytest_npubench.verdict.result import Metric


def campaign_sections(
    cases: Cases, journal: Journal, sessions: Collection[str], shown_by: ShownBy
) -> tuple[CampaignSection, ...]:
    """In the order of the first record of each. `sessions` are those whose rounds may be shown."""
    return tuple(
        _section(f"campaign-{index}", own, journal, sessions, shown_by)
        for index, own in enumerate(cases.by(_key).values(), start=1)
    )


def metrics_table(cases: Cases) -> Table | None:
    """Every metric of every case, also those that no chart knows."""
    rows = [(record.id, metric) for record in cases.records for metric in record.judgement.metrics]
    columns: Columns[tuple[str, Metric]] = (
        ("case", lambda row: row[0]),
        ("metric", lambda row: row[1].name),
        ("value", lambda row: _figure(row[1], row[1].value)),
        ("samples", lambda row: str(len(row[1].samples))),
        ("lowest", lambda row: _figure(row[1], min(row[1].samples, default=None))),
        ("highest", lambda row: _figure(row[1], max(row[1].samples, default=None))),
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
        charts=charts,
        tables=tuple(item for item in (*tables, _failures(rounds)) if item is not None),
        metrics=metrics_table(cases),
    )


def plain_parts(rounds: Rounds) -> Parts:
    """Of a campaign that times points, where its suite has nothing more to show."""
    drift = drift_chart(rounds)
    return () if drift is None else (drift,), (), ()


class PlainShown:
    """What is shown of cases whose suite is not here: what every campaign has."""

    def parts(self, cases: Cases, rounds: Rounds) -> Parts:
        return plain_parts(rounds)

    def lanes(self, points: Round) -> Iterable[Lane]:
        return plain_lanes(points)

    def lines(self, cases: Cases) -> Sequence[str]:
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
    found: dict[tuple[str, str], list[str]] = {}
    for record in rounds:
        for name, reason in (record.get("failures") or {}).items():
            found.setdefault((name, reason), []).append(str(record["round"]))
    columns: Columns[tuple[str, str]] = (
        ("point", lambda row: row[0]),
        ("round", lambda row: ", ".join(found[row])),
        ("reason", lambda row: row[1]),
    )
    return table("Points that failed", columns, found) if found else None


def _figure(metric: Metric, value: float | None) -> str:
    """Fractions as percent, memory streams in GB/s; all else in its own unit."""
    if value is not None and metric.unit == "" and metric.name.endswith(("fraction", "regret", "prediction_error")):
        return f"{number_text.percent(value)} %"
    if value is not None and metric.unit == "B/s":
        return f"{value * 1e-9:.4g} GB/s"
    return number_text.figure(value, metric.unit)
