"""One section of the page for each campaign: a suite's cases of one hardware file, model and batch size on a device."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from pytest_npubench.reports import definitions, number_text, offload_notes, partition_notes
from pytest_npubench.reports.bucket_charts import bucket_charts, cost_table, steps_chart
from pytest_npubench.reports.continuous_lines import continuous_lines
from pytest_npubench.reports.drift import VLLM, campaign_rounds, drift_chart
from pytest_npubench.reports.experiment_tables import experiment_tables
from pytest_npubench.reports.latency_tables import latency_table
from pytest_npubench.reports.offload_charts import offload_charts
from pytest_npubench.reports.offload_lines import offload_lines
from pytest_npubench.reports.offload_tables import offload_tables
from pytest_npubench.reports.page import CampaignSection, Chart, Table
from pytest_npubench.reports.pair_rounds import pair_rounds
from pytest_npubench.reports.partition_charts import partition_charts
from pytest_npubench.reports.partition_lines import partition_lines
from pytest_npubench.reports.partition_tables import partition_tables
from pytest_npubench.reports.policy_tables import burst_tables, policy_table
from pytest_npubench.reports.prediction_charts import batch_chart, error_chart, padding_chart
from pytest_npubench.reports.predictions import predictions
from pytest_npubench.reports.record_fields import (
    Record,
    campaign_key,
    kind_of,
    number,
    numbers,
    suite_of,
    table,
    text,
)
from pytest_npubench.reports.scheduling_charts import scheduling_charts
from pytest_npubench.reports.scheduling_lines import comparison_lines, vllm_policy_lines
from pytest_npubench.reports.served_loads import served_loads
from pytest_npubench.reports.server_lines import server_lines
from pytest_npubench.reports.server_tables import server_tables
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
    keys = dict.fromkeys(campaign_key(record).removesuffix(VLLM) for record in records)  # an invalid one says no engine
    campaigns = [campaign_rounds(journal, campaign, fingerprint, sessions) for campaign in keys]
    rounds = [record for own in campaigns for record in own]
    own_callables = all(kind_of(record) == "callable" for record in records)
    charts, tables, remarks = PARTS.get(suite_of(records[0]), _timed)(records, rounds)
    return CampaignSection(
        anchor=anchor,
        title=_title(records[0], own_callables),
        device=device,
        remarks=(*remarks, *_round_remarks(campaigns, own_callables)),
        charts=charts,
        tables=tuple(item for item in (*tables, _failures(rounds)) if item is not None),
        metrics=metrics_table(records),
    )


def _title(record: Record, own_callables: bool) -> str:
    hardware, model, batch = (text(record, name) for name in ("hardware", "model", "batch_size"))
    if own_callables:
        return f"{hardware}: own callables"
    suite = suite_of(record)
    return f"{hardware}: {model}, {suite if suite in PARTS else f'batch {batch}'}"


def _timed(records: Sequence[Record], rounds: Sequence[Record]) -> Parts:
    """Of a campaign that times points of their own: buckets, workloads, callables."""
    remarks = (*(f"{line}." for line in continuous_lines(records)), *_mean_errors(records))
    found = predictions(records)
    charts = [
        *bucket_charts(records),
        steps_chart(records),
        drift_chart(rounds),
        *((error_chart(found), batch_chart(found), padding_chart(found)) if found else ()),
    ]
    return tuple(chart for chart in charts if chart is not None), (cost_table(records),), remarks


def _served(records: Sequence[Record], rounds: Sequence[Record]) -> Parts:
    """Of a campaign that serves requests under one policy after the other."""
    drift = drift_chart(served_rounds(rounds), definitions.SERVING_DRIFT)
    charts = (*scheduling_charts(records), *(() if drift is None else (drift,)))
    loads = served_loads(records)
    of_loads = (made for load in loads for made in (latency_table(load), policy_table(load)))
    tables = (*of_loads, *experiment_tables(records), *burst_tables(records))
    return charts, tables, _sentences([*comparison_lines(records), *vllm_policy_lines(records)])


def _partitioned(records: Sequence[Record], rounds: Sequence[Record]) -> Parts:
    """Of a campaign that splits the operators of a model over two units."""
    drift = drift_chart(pair_rounds(rounds), partition_notes.DRIFT)
    charts = (*partition_charts(records), *(() if drift is None else (drift,)))
    return charts, partition_tables(records), _sentences(partition_lines(records))


def _offloaded(records: Sequence[Record], rounds: Sequence[Record]) -> Parts:
    """Of the campaigns of llm.npu's techniques, one an experiment."""
    drift = drift_chart(pair_rounds(rounds), offload_notes.DRIFT)
    charts = (*offload_charts(records), *(() if drift is None else (drift,)))
    return charts, offload_tables(records), _sentences(offload_lines(records))


def _loaded(records: Sequence[Record], rounds: Sequence[Record]) -> Parts:
    """Of a campaign that sends requests to a server."""
    return (), server_tables(records), _sentences(server_lines(records))


PARTS: Mapping[str, Callable[[Sequence[Record], Sequence[Record]], Parts]] = {
    "scheduling": _served,
    "partition": _partitioned,
    "offload": _offloaded,
    "server": _loaded,
}
"""Suites whose sections have parts of their own."""


def _sentences(lines: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{line[0].upper()}{line[1:]}." for line in lines)


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
