"""What `npubench load` prints for people: who was asked what, how the client kept up, then a row a metric."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import Any

from pytest_npubench.core.plain_table import PlainTable, cell, plain_console, written
from pytest_npubench.reports.number_text import figures

NARROWEST = 100


def rendered(answer: Mapping[str, Any]) -> str:
    """Renders an answer as text of lines of 100 columns or more; `answer` is what --json prints."""
    width = max(shutil.get_terminal_size((NARROWEST, 24)).columns, NARROWEST)
    console = plain_console(width)
    for line in _heading(answer):
        console.print(cell(line))
    console.print(_table(answer))
    return written(console)


def _heading(answer: Mapping[str, Any]) -> list[str]:
    server, client = answer["server"], answer["client"]
    failures = "; ".join(f"{number} {name}" for name, number in answer["failures"].items()) or "none"
    counted = "; ".join(f"{number} by {name}" for name, number in answer["counted_by"].items())
    late = [client[name] for name in ("dispatch_lag_p99_s", "loop_stall_p99_s", "loop_stall_worst_s")]
    lag, stall, worst = figures(late, "s")
    return [
        f"server     {server['name']} by {server['software'] or 'unknown software'} at {server['url']}",
        f"requests   {answer['num_requests']} of {answer['workload']} at {answer['rate_per_s']:g} a second, seed "
        f"{answer['seed']}, {answer['api']} API, prompts of {answer['prompt']}",
        f"failed     {failures}",
        f"counted    {counted}",
        f"client     dispatch lag {lag} and loop stalls {stall} at p99, worst stall {worst}",
        f"SLO        {_slo(answer)}",
    ]


def _slo(answer: Mapping[str, Any]) -> str:
    slo = answer["slo"]
    if slo is None:
        return "none given"
    attained = next(metric["value"] for metric in answer["metrics"] if metric["name"] == "slo_attainment")
    outcome = "attained" if answer["attained"] else "missed"
    return (
        f"TTFT {slo['ttft_s']:g} s and every TBT {slo['tbt_s'] * 1e3:g} ms: {outcome} "
        f"({attained:.2%} of the arrived requests, {slo['attainment']:.0%} wanted)"
    )


def _table(answer: Mapping[str, Any]) -> PlainTable:
    table = PlainTable()
    table.add_column("metric", no_wrap=True)
    table.add_column("value", justify="right")
    table.add_column("95 % interval", justify="right")
    table.add_column("n", justify="right")
    table.add_column("note")
    for metric in answer["metrics"]:
        if metric["value"] is not None:
            value, *ends = figures((metric["value"], *(metric["interval"] or ())), metric["unit"])
            table.add_row(
                metric["name"],
                value,
                " to ".join(ends),
                str(metric["num_samples"]),
                metric["note"],
            )
    return table
