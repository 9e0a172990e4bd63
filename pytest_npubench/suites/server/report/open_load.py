"""What the server suite shows: what its cases say, and each load in a sentence for the terminal and the page."""

from __future__ import annotations

from dataclasses import replace

from pytest_npubench.reports import number_text
from pytest_npubench.reports.campaign_sections import sentences
from pytest_npubench.reports.detail_parts import detail_parts
from pytest_npubench.reports.page import Parts, Rounds
from pytest_npubench.suites.server.kinds.capacity import CapacityDetail
from pytest_npubench.suites.server.kinds.open_load import OpenLoadDetail
from pytest_npubench.suites.server.report.capacity import capacity_line, swept_charts
from pytest_npubench.verdict.case_record import CaseRecord, Cases

Load = CaseRecord[OpenLoadDetail]

NOTES = {
    "open_load": (
        "All times are the client's, from when a request was due: what the network takes is in them. Tokens of one "
        "event have one time, so gaps of 0 stand for tokens that came together. A case is invalid where the client's "
        "own part is over a tenth of what it measured."
    ),
}
"""By kind, what its figures mean."""


def parts(cases: Cases, rounds: Rounds) -> Parts:
    charts, tables = detail_parts(cases, pictured={"capacity": {"rates", "capacity_interval"}}, notes=NOTES)
    sweeps = cases.of("capacity", CapacityDetail)
    curves = [replace(drawn, shows=(case.key,)) for case in sweeps for drawn in swept_charts(case.detail)]
    return (*curves, *charts), tuple(tables), sentences(lines(cases))


def lines(cases: Cases) -> list[str]:
    """Latency and attainment of each load, what failed, and how the client kept up."""
    swept = map(capacity_line, cases.of("capacity", CapacityDetail))
    return [*map(_line, cases.of("open_load", OpenLoadDetail)), *swept]


def _name(load: Load) -> str:
    return f"{load.detail.workload} at {load.detail.rate_per_s:.3g} req/s"


def _failed(load: Load) -> str:
    """ "; failed: 3 HTTP 429, 1 disconnected of 40"; empty where none failed."""
    counted = ", ".join(f"{number:,} {name}" for name, number in load.detail.failures.items())
    return f"; failed: {counted} of {load.detail.num_arrived:,}" if counted else ""


def _remarked(load: Load) -> str:
    return "".join(
        f"; {number:,} of {load.detail.num_arrived:,}: {text}" for text, number in load.detail.remarks.items()
    )


def _own_figures(load: Load) -> str:
    """ "; its server: 4 running (6 at most)"; empty where it says nothing of itself."""
    return f"; its server: {load.detail.server.in_words}" if load.detail.server else ""


def _line(load: Load) -> str:
    times = ", ".join(
        f"{time.upper()} mean {_milliseconds(load, f'{time}_mean_s')} and p99 {_milliseconds(load, f'{time}_p99_s')} ms"
        for time in ("ttft", "tbt")
    )
    attained = load.metric("slo_attainment")
    share = f", SLO attainment {attained.value:.1%}" if attained is not None else ""
    lag, stall, worst = (
        _milliseconds(load, name) for name in ("dispatch_lag_p99_s", "loop_stall_p99_s", "loop_stall_worst_s")
    )
    return (
        f"server under {_name(load)}: {times}{share}{_failed(load)}{_remarked(load)}; "
        f"its client: dispatch lag p99 {lag} ms, loop stalls p99 {stall} ms and worst {worst} ms"
        f"{_own_figures(load)}"
    )


def _milliseconds(load: Load, name: str) -> str:
    """Writes a metric in seconds as milliseconds; a dash where nothing was seen of it."""
    metric = load.metric(name)
    return number_text.milliseconds(None if metric is None else metric.value)
