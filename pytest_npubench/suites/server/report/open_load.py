"""What the server suite shows: its loads in two tables, and in a sentence each for the terminal and the page."""

from __future__ import annotations

from pytest_npubench.campaign.served_metrics import ServedFigure
from pytest_npubench.reports import number_text
from pytest_npubench.reports.build import NO_BREAK, of_kind, table
from pytest_npubench.reports.campaign_sections import sentences
from pytest_npubench.reports.page import Parts, Rounds, Table
from pytest_npubench.suites.server.kinds.open_load import OpenLoadDetail
from pytest_npubench.verdict.case_record import CaseRecord, Cases

Load = CaseRecord[OpenLoadDetail]

PARTS = ("mean", "p50", "p90", "p99")
TIMES = ("ttft", "tbt", "e2e")
SEEN = (
    "All times are the client's, from when a request was due: what the network takes is in them. Tokens of one event "
    "have one time, so gaps of 0 stand for tokens that came together."
)
CLIENT = "A case is invalid where the client's own part is over a tenth of what it measured."
ROWS = {
    "SLO attainment": "slo_attainment",
    "TTFT attainment": "ttft_attainment",
    "TBT attainment": "tbt_attainment",
    "goodput": "goodput_requests_per_s",
    "output": "output_tokens_per_s",
    "realised rate": "realised_rate_per_s",
    "dispatch lag p99": "dispatch_lag_p99_s",
    "loop stalls p99": "loop_stall_p99_s",
    "loop stall, worst": "loop_stall_worst_s",
}


def parts(cases: Cases, rounds: Rounds) -> Parts:
    """No tables where no load has figures."""
    loads = _measured(cases)
    tables = of_kind("open_load", (_latencies(loads), _loads(loads)) if loads else ())
    return (), tuple(tables), sentences(map(_line, loads))


def lines(cases: Cases) -> list[str]:
    """Latency and attainment of each load, what failed, and how the client kept up."""
    return list(map(_line, _measured(cases)))


def _measured(cases: Cases) -> list[Load]:
    return cases.of("open_load", OpenLoadDetail)


def _name(load: Load) -> str:
    return f"{load.detail.workload} at {load.detail.rate_per_s:.3g} req/s"


def _latencies(loads: list[Load]) -> Table:
    return table(
        "Latencies by load",
        (
            ("load", lambda row: _name(row[0])),
            ("latency, ms", lambda row: row[1].upper()),
            *((part, lambda row, part=part: _cell(_seen(row[0], row[1], part))) for part in PARTS),
            ("worst", lambda row: _milliseconds(row[0], "tbt_worst_s") if row[1] == "tbt" else ""),
            ("n", lambda row: f"{seen.num_samples:,}" if (seen := _seen(row[0], row[1], "mean")) else "0"),
        ),
        [(load, time) for load in loads for time in TIMES],
        note=SEEN,
    )


def _seen(load: Load, time: str, part: str) -> ServedFigure | None:
    """None where no request had that time: an answer of one token has no TBT."""
    return load.detail.figures.get(f"{time}_{part}_s")


def _cell(figure: ServedFigure | None) -> str:
    """The value with its 95 % interval, in milliseconds; a dash where nothing was seen of it."""
    if figure is None:
        return number_text.UNKNOWN
    shown = number_text.milliseconds(figure.value)
    if figure.interval is None:
        return shown
    low, high = map(number_text.milliseconds, figure.interval)
    return f"{shown} ({low}{NO_BREAK}to{NO_BREAK}{high})"


def _loads(loads: list[Load]) -> Table:
    names = [*ROWS, "failed", "tokens counted by", "limits"]
    columns = [(_name(load), _column(load)) for load in loads]
    return table(
        "Attainment, throughput, failures and the client",
        (
            ("figure", lambda place: names[place]),
            *((name, lambda place, column=column: column[place]) for name, column in columns),
        ),
        range(len(names)),
        note=CLIENT,
    )


def _column(load: Load) -> list[str]:
    counted = load.detail.counted_by.items()
    return [
        *(_figure(load, name) for name in ROWS.values()),
        _failed(load) or "none",
        ", ".join(f"{name} ({number:,})" for name, number in counted) or number_text.UNKNOWN,
        _limits(load.detail),
    ]


def _figure(load: Load, name: str) -> str:
    metric = load.metric(name)
    if metric is None:
        return number_text.UNKNOWN
    is_share = name.endswith("attainment")
    return f"{number_text.percent(metric.value)} %" if is_share else number_text.figure(metric.value, metric.unit)


def _limits(detail: OpenLoadDetail) -> str:
    if detail.slo.ttft_s is None:
        return "none"
    ttft, tbt = map(number_text.milliseconds, (detail.slo.ttft_s, detail.slo.tbt_s))
    return f"TTFT {ttft} ms, every TBT {tbt} ms"


def _failed(load: Load) -> str:
    """ "3 HTTP 429, 1 disconnected of 40"; empty where none failed."""
    counted = ", ".join(f"{number:,} {name}" for name, number in load.detail.failures.items())
    return f"{counted} of {load.detail.num_arrived:,}" if counted else ""


def _line(load: Load) -> str:
    times = ", ".join(
        f"{time.upper()} mean {_milliseconds(load, f'{time}_mean_s')} and p99 {_milliseconds(load, f'{time}_p99_s')} ms"
        for time in ("ttft", "tbt")
    )
    attained, failed = load.metric("slo_attainment"), _failed(load)
    share = f", SLO attainment {attained.value:.1%}" if attained is not None else ""
    lag, stall, worst = (
        _milliseconds(load, name) for name in ("dispatch_lag_p99_s", "loop_stall_p99_s", "loop_stall_worst_s")
    )
    return (
        f"server under {_name(load)}: {times}{share}{f'; failed: {failed}' if failed else ''}; "
        f"its client: dispatch lag p99 {lag} ms, loop stalls p99 {stall} ms and worst {worst} ms"
    )


def _milliseconds(load: Load, name: str) -> str:
    """Of a metric in seconds; a dash where nothing was seen of it."""
    metric = load.metric(name)
    return number_text.milliseconds(None if metric is None else metric.value)
