"""What the section of a campaign that loads a server shows."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_npubench.reports import number_text
from pytest_npubench.reports.campaign_sections import sentences
from pytest_npubench.reports.page import Parts, Table
from pytest_npubench.reports.record_fields import Record, finite, number, table, text
from pytest_npubench.reports.served_loads import load_name
from pytest_npubench.suites.server.report.lines import failed_text, server_lines, value


def parts(records: Sequence[Record], rounds: Sequence[Record]) -> Parts:
    return (), server_tables(records), sentences(server_lines(records))


PARTS = ("mean", "p50", "p90", "p99")
TIMES = ("ttft", "tbt", "e2e")
NO_BREAK = "\u00a0"  # a cell breaks before its interval, not inside
SEEN = (
    "All times are the client's, from when a request was due: what the network takes is in them. Tokens of one event "
    "have one time, so gaps of 0 stand for tokens that came together."
)
CLIENT = "A case is invalid where the client's own part is over a tenth of what it measured."
ROWS = (
    ("SLO attainment", "slo_attainment"),
    ("TTFT attainment", "ttft_attainment"),
    ("TBT attainment", "tbt_attainment"),
    ("goodput", "goodput_requests_per_s"),
    ("output", "output_tokens_per_s"),
    ("realised rate", "realised_rate_per_s"),
    ("dispatch lag p99", "dispatch_lag_p99_s"),
    ("loop stalls p99", "loop_stall_p99_s"),
    ("loop stall, worst", "loop_stall_worst_s"),
)


def server_tables(records: Sequence[Record]) -> tuple[Table, ...]:
    """None of loads without figures, which are invalid."""
    known = [record for record in records if table(record, "metrics")]
    return (_latencies(known), _loads(known)) if known else ()


def _latencies(records: Sequence[Record]) -> Table:
    return Table(
        caption="Latencies by load",
        header=("load", "latency, ms", *PARTS, "worst", "n"),
        rows=tuple(_times(record, time) for record in records for time in TIMES),
        note=SEEN,
    )


def _times(record: Record, time: str) -> tuple[str, ...]:
    figures = table(table(record, "detail"), "figures")
    worst = number_text.milliseconds(value(record, "tbt_worst_s")) if time == "tbt" else ""
    num = number(table(figures, f"{time}_mean_s"), "num_samples")
    cells = [_cell(table(figures, f"{time}_{part}_s")) for part in PARTS]
    return (load_name(record), time.upper(), *cells, worst, number_text.count(num))


def _cell(figure: Record) -> str:
    """The value with its 95 % interval, in milliseconds."""
    shown, ends = number_text.milliseconds(number(figure, "value")), finite(figure.get("interval"))
    if len(ends) != 2:
        return shown
    low, high = map(number_text.milliseconds, ends)
    return f"{shown} ({low}{NO_BREAK}to{NO_BREAK}{high})"


def _loads(records: Sequence[Record]) -> Table:
    rows = [(name, *(_figure(record, metric) for record in records)) for name, metric in ROWS]
    rows.append(("failed", *(failed_text(record) or "none" for record in records)))
    rows.append(("tokens counted by", *map(_counted, records)))
    rows.append(("limits", *map(_limits, records)))
    return Table(
        caption="Attainment, throughput, failures and the client",
        header=("figure", *map(load_name, records)),
        rows=tuple(rows),
        note=CLIENT,
    )


def _figure(record: Record, name: str) -> str:
    found = value(record, name)
    if name.endswith("attainment") and found is not None:
        return f"{number_text.percent(found)} %"
    return number_text.figure(found, text(table(table(record, "metrics"), name), "unit"))


def _counted(record: Record) -> str:
    counted = table(table(record, "detail"), "counted_by")
    return ", ".join(f"{name} ({number_text.count(number(counted, name))})" for name in counted) or number_text.UNKNOWN


def _limits(record: Record) -> str:
    slo = table(table(record, "detail"), "slo")
    if not slo:
        return "none"
    ttft, tbt = (number_text.milliseconds(number(slo, name)) for name in ("ttft_s", "tbt_s"))
    return f"TTFT {ttft} ms, every TBT {tbt} ms"
