"""One section of the page for each campaign: a suite's cases of one hardware file, model and batch size on a device."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from pytest_npubench.reports import number_text
from pytest_npubench.reports.drift import campaign_rounds, drift_chart
from pytest_npubench.reports.page import CampaignSection, Parts, ShownBy, Table
from pytest_npubench.reports.record_fields import Record, kind_of, number, numbers, suite_of, table, text
from pytest_npubench.store.journal_reader import Journal

Key = tuple[str, ...]


def campaign_sections(
    records: Sequence[Record], journal: Journal, sessions: Collection[str], shown_by: ShownBy
) -> tuple[CampaignSection, ...]:
    """In the order of the first record of each. `sessions` are those whose rounds may be shown."""
    groups: dict[Key, list[Record]] = {}
    for record in records:
        key = (suite_of(record), *(text(record, name) for name in ("hardware", "model", "batch_size", "device")))
        groups.setdefault(key, []).append(record)
    return tuple(
        _section(f"campaign-{index}", key, own, journal, sessions, shown_by)
        for index, (key, own) in enumerate(groups.items(), start=1)
    )


def metrics_table(records: Sequence[Record]) -> Table | None:
    """Every metric of every case, also those that no chart knows."""
    rows = [
        _metric_row(text(record, "id"), name, metric)
        for record in records
        for name, metric in table(record, "metrics").items()
        if isinstance(metric, dict)
    ]
    header = ("case", "metric", "value", "samples", "lowest", "highest")
    return Table(caption="All metrics", header=header, rows=tuple(rows)) if rows else None


def _section(
    anchor: str,
    key: Key,
    records: Sequence[Record],
    journal: Journal,
    sessions: Collection[str],
    shown_by: ShownBy,
) -> CampaignSection:
    shown, device = shown_by(key[0]), key[-1]
    fingerprint = next((text(record, "fingerprint") for record in records if record.get("fingerprint")), None)
    keys = dict.fromkeys(filter(None, (text(record, "campaign") for record in records)))
    campaigns = [campaign_rounds(journal, campaign, fingerprint, sessions) for campaign in keys]
    rounds = [record for own in campaigns for record in own]
    own_callables = all(kind_of(record) == "callable" for record in records)
    charts, tables, remarks = shown.parts(records, rounds)
    return CampaignSection(
        anchor=anchor,
        title=_title(records[0], "own callables" if own_callables else shown.heading(records[0])),
        device=device,
        remarks=(*remarks, *_round_remarks(campaigns, own_callables)),
        charts=charts,
        tables=tuple(item for item in (*tables, _failures(rounds)) if item is not None),
        metrics=metrics_table(records),
    )


def _title(record: Record, heading: str) -> str:
    return f"{text(record, 'hardware')}: {heading}"


def plain_parts(records: Sequence[Record], rounds: Sequence[Record]) -> Parts:
    """Of a campaign that times points, where its suite has nothing more to show."""
    drift = drift_chart(rounds)
    return () if drift is None else (drift,), (), ()


class PlainShown:
    """What is shown of cases whose suite is not here: what every campaign has."""

    def parts(self, records: Sequence[Record], rounds: Sequence[Record]) -> Parts:
        return plain_parts(records, rounds)

    def lines(self, records: Sequence[Record]) -> Sequence[str]:
        return ()

    def heading(self, record: Record) -> str:
        return f"{text(record, 'model')}, batch {text(record, 'batch_size')}"


def sentences(lines: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{line[0].upper()}{line[1:]}." for line in lines)


def _round_remarks(campaigns: Sequence[Sequence[Record]], own_callables: bool) -> list[str]:
    rounds = [record for own in campaigns for record in own]
    if not rounds:
        return [] if own_callables else ["The journal holds no rounds of this campaign."]
    seconds = [value for record in rounds if (value := number(record, "duration_s")) is not None]
    spent = f" in {number_text.duration(sum(seconds))}" if seconds else ""
    late = max((number(record, "num_late_compiles") or 0 for record in rounds), default=0)
    num_campaigns = sum(bool(own) for own in campaigns)
    among = f" of {num_campaigns} campaigns" if num_campaigns > 1 else ""
    remarks = [f"{len(rounds)} rounds{among}{spent}."]
    if any(own and own[-1].get("complete") is False for own in campaigns):
        remarks.append("The campaign ended before it had enough rounds.")
    if late:
        remarks.append(f"{late:.0f} compiles happened while rounds ran, so samples may hold compile time.")
    return remarks


def _failures(rounds: Sequence[Record]) -> Table | None:
    """The points that failed, with the rounds in which they did for one reason."""
    found: dict[tuple[str, str], list[str]] = {}
    for record in rounds:
        for name, reason in table(record, "failures").items():
            found.setdefault((name, str(reason)), []).append(str(record["round"]))
    rows = tuple((name, ", ".join(indexes), reason) for (name, reason), indexes in found.items())
    return Table(caption="Points that failed", header=("point", "round", "reason"), rows=rows) if rows else None


def _metric_row(case: str, name: str, metric: Record) -> tuple[str, ...]:
    unit, samples = text(metric, "unit"), numbers(metric, "samples")
    ends = (min(samples), max(samples)) if samples else (None, None)
    value, lowest, highest = (_metric(name, item, unit) for item in (number(metric, "value"), *ends))
    return (case, name, value, str(len(samples)), lowest, highest)


def _metric(name: str, value: float | None, unit: str) -> str:
    """Fractions as percent, memory streams in GB/s; all else in its own unit."""
    if value is not None and unit == "" and name.endswith(("fraction", "regret", "prediction_error")):
        return f"{number_text.percent(value)} %"
    if value is not None and unit == "B/s":
        return f"{value * 1e-9:.4g} GB/s"
    return number_text.figure(value, unit)
