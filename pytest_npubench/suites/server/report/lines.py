"""What the server suite says in sentences: one a load, for the terminal and for the head of its section."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_npubench.reports import number_text
from pytest_npubench.reports.record_fields import Record, number, suite_of, table
from pytest_npubench.reports.served_loads import load_name


def server_lines(records: Iterable[Record]) -> list[str]:
    """Latency and attainment of each load, what failed, and how the client kept up."""
    own = [record for record in records if suite_of(record) == "server" and table(record, "metrics")]
    return [f"{_answers(record)}; {_client(record)}" for record in own]


def value(record: Record, name: str) -> float | None:
    """A metric's value; None where the case has none of that name."""
    return number(table(table(record, "metrics"), name), "value")


def failed_text(record: Record) -> str:
    """ "3 HTTP 429, 1 disconnected of 40"; empty where none failed."""
    detail = table(record, "detail")
    failures = table(detail, "failures")
    counted = ", ".join(f"{number_text.count(number(failures, name))} {name}" for name in failures)
    return f"{counted} of {number_text.count(number(detail, 'num_arrived'))}" if counted else ""


def _answers(record: Record) -> str:
    times = ", ".join(
        f"{name.upper()} mean {number_text.milliseconds(value(record, f'{name}_mean_s'))} and p99 "
        f"{number_text.milliseconds(value(record, f'{name}_p99_s'))} ms"
        for name in ("ttft", "tbt")
    )
    attained = value(record, "slo_attainment")
    share = f", SLO attainment {attained:.1%}" if attained is not None else ""
    failed = failed_text(record)
    return f"server under {load_name(record)}: {times}{share}" + (f"; failed: {failed}" if failed else "")


def _client(record: Record) -> str:
    lag, stall, worst = (
        number_text.milliseconds(value(record, name))
        for name in ("dispatch_lag_p99_s", "loop_stall_p99_s", "loop_stall_worst_s")
    )
    return f"its client: dispatch lag p99 {lag} ms, loop stalls p99 {stall} ms and worst {worst} ms"
