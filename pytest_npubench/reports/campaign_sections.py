"""One section of the page for each campaign: a suite's cases of one hardware file, model and batch size on a device."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pytest_npubench.reports import definitions, number_text
from pytest_npubench.reports.bucket_charts import bucket_charts, cost_table, steps_chart
from pytest_npubench.reports.drift import campaign_rounds, drift_chart
from pytest_npubench.reports.page import CampaignSection, Chart, Table
from pytest_npubench.reports.policy_charts import burst_tables, policy_table
from pytest_npubench.reports.prediction_charts import batch_chart, error_chart, padding_chart
from pytest_npubench.reports.predictions import predictions
from pytest_npubench.reports.record_fields import (
    Record,
    campaign_key,
    is_scheduling,
    kind_of,
    number,
    numbers,
    suite_of,
    table,
    text,
)
from pytest_npubench.reports.scheduling_charts import scheduling_charts
from pytest_npubench.reports.scheduling_lines import comparison_lines
from pytest_npubench.reports.served_loads import served_loads
from pytest_npubench.reports.serving_rounds import served_rounds
from pytest_npubench.store.journal_reader import Journal

Key = tuple[str, ...]
Parts = tuple[tuple[Chart, ...], tuple[Table | None, ...], tuple[str, ...]]
"""Charts, tables and remarks of a section."""


def campaign_sections(
    records: Sequence[Record], journal: Journal, sessions: Collection[str]
) -> tuple[CampaignSection, ...]:
    """In the order of the first record of each. `sessions` are those whose rounds may be shown."""
    groups: dict[Key, list[Record]] = {}
    for record in records:
        key = (suite_of(record), *(text(record, name) for name in ("hardware", "model", "batch_size", "device")))
        groups.setdefault(key, []).append(record)
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
    device = key[-1]
    fingerprint = next((text(record, "fingerprint") for record in records if record.get("fingerprint")), None)
    rounds = campaign_rounds(journal, campaign_key(records[0]), fingerprint, sessions)
    own_callables = all(kind_of(record) == "callable" for record in records)
    charts, tables, remarks = (_served if is_scheduling(records[0]) else _timed)(records, rounds)
    return CampaignSection(
        anchor=anchor,
        title=_title(records[0], own_callables),
        device=device,
        remarks=(*remarks, *_round_remarks(rounds, own_callables)),
        charts=charts,
        tables=tuple(item for item in (*tables, _failures(rounds)) if item is not None),
        metrics=metrics_table(records),
    )


def _title(record: Record, own_callables: bool) -> str:
    hardware, model, batch = (text(record, name) for name in ("hardware", "model", "batch_size"))
    if own_callables:
        return f"{hardware}: own callables"
    return f"{hardware}: {model}, scheduling" if is_scheduling(record) else f"{hardware}: {model}, batch {batch}"


def _timed(records: Sequence[Record], rounds: Sequence[Record]) -> Parts:
    """Of a campaign that times points of their own: buckets, workloads, callables."""
    found = predictions(records)
    charts = [
        *bucket_charts(records),
        steps_chart(records),
        drift_chart(rounds),
        *((error_chart(found), batch_chart(found), padding_chart(found)) if found else ()),
    ]
    return tuple(chart for chart in charts if chart is not None), (cost_table(records),), tuple(_mean_errors(records))


def _served(records: Sequence[Record], rounds: Sequence[Record]) -> Parts:
    """Of a campaign that serves requests under one policy after the other."""
    drift = drift_chart(served_rounds(rounds), definitions.SERVING_DRIFT)
    charts = (*scheduling_charts(records), *(() if drift is None else (drift,)))
    tables = (*map(policy_table, served_loads(records)), *burst_tables(records))
    return charts, tables, tuple(f"{line[0].upper()}{line[1:]}." for line in comparison_lines(records))


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
