"""One section of the page for each campaign: all cases of one hardware file, model and batch size on one device."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pytest_npubench.reports import number_text
from pytest_npubench.reports.bucket_charts import bucket_charts, cost_table, steps_chart
from pytest_npubench.reports.drift import campaign_rounds, drift_chart
from pytest_npubench.reports.page import CampaignSection, Chart, Table
from pytest_npubench.reports.prediction_charts import batch_chart, error_chart, padding_chart
from pytest_npubench.reports.predictions import predictions
from pytest_npubench.reports.record_fields import Record, campaign_key, kind_of, number, numbers, table, text
from pytest_npubench.store.journal_reader import Journal

Key = tuple[str, str, str, str]


def campaign_sections(
    records: Sequence[Record], journal: Journal, sessions: Collection[str]
) -> tuple[CampaignSection, ...]:
    """In the order of the first record of each. `sessions` are those whose rounds may be shown."""
    groups: dict[Key, list[Record]] = {}
    for record in records:
        hardware, model, batch, device = (text(record, name) for name in ("hardware", "model", "batch_size", "device"))
        groups.setdefault((hardware, model, batch, device), []).append(record)
    return tuple(
        _section(f"campaign-{index}", key, own, journal, sessions)
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
    anchor: str, key: Key, records: Sequence[Record], journal: Journal, sessions: Collection[str]
) -> CampaignSection:
    hardware, model, batch, device = key
    fingerprint = next((text(record, "fingerprint") for record in records if record.get("fingerprint")), None)
    rounds = campaign_rounds(journal, campaign_key(records[0]), fingerprint, sessions)
    own_callables = all(kind_of(record) == "callable" for record in records)
    return CampaignSection(
        anchor=anchor,
        title=f"{hardware}: own callables" if own_callables else f"{hardware}: {model}, batch {batch}",
        device=device,
        remarks=(*_mean_errors(records), *_round_remarks(rounds, own_callables)),
        charts=_charts(records, rounds),
        tables=tuple(item for item in (cost_table(records), _failures(rounds)) if item is not None),
        metrics=metrics_table(records),
    )


def _charts(records: Sequence[Record], rounds: Sequence[Record]) -> tuple[Chart, ...]:
    found = predictions(records)
    charts = [
        *bucket_charts(records),
        steps_chart(records),
        drift_chart(rounds),
        *((error_chart(found), batch_chart(found), padding_chart(found)) if found else ()),
    ]
    return tuple(chart for chart in charts if chart is not None)


def _mean_errors(records: Sequence[Record]) -> list[str]:
    """What the mean_error case of the campaign says."""
    remarks = []
    for record in records:
        mean = number(record, "error")
        if kind_of(record) == "mean_error" and mean is not None:
            detail = table(record, "detail")
            parts = {name: number(detail, name) for name in ("signed_mean", "median", "p90", "max")}
            shown = ", ".join(
                f"{name.replace('_', ' ')} {value:.2%}" for name, value in parts.items() if value is not None
            )
            remarks.append(f"Mean prediction error {mean:.2%}{f' ({shown})' if shown else ''}.")
    return remarks


def _round_remarks(rounds: Sequence[Record], own_callables: bool) -> list[str]:
    if not rounds:
        return [] if own_callables else ["The journal holds no rounds of this campaign."]
    seconds = [value for record in rounds if (value := number(record, "duration_s")) is not None]
    spent = f" in {number_text.duration(sum(seconds))}" if seconds else ""
    late = max((number(record, "num_late_compiles") or 0 for record in rounds), default=0)
    remarks = [f"{len(rounds)} rounds{spent}."]
    if rounds[-1].get("complete") is False:
        remarks.append("The campaign ended before it had enough rounds.")
    if late:
        remarks.append(f"{late:.0f} compiles happened while rounds ran, so samples may hold compile time.")
    return remarks


def _failures(rounds: Sequence[Record]) -> Table | None:
    """The points that failed, with the round and the reason."""
    rows = tuple(
        (name, str(record["round"]), str(reason))
        for record in rounds
        for name, reason in table(record, "failures").items()
    )
    return Table(caption="Points that failed", header=("point", "round", "reason"), rows=rows) if rows else None


def _metric_row(case: str, name: str, metric: Record) -> tuple[str, ...]:
    unit, samples = text(metric, "unit"), numbers(metric, "samples")
    ends = (min(samples), max(samples)) if samples else (None, None)
    value = number_text.figure(number(metric, "value"), unit)
    lowest, highest = (number_text.figure(end, unit) for end in ends)
    return (case, name, value, str(len(samples)), lowest, highest)
