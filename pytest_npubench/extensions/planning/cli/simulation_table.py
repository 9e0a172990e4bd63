"""What `npubench simulate` prints for people: what was simulated, then a table a rate, a column a policy."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_npubench.core.plain_table import PlainTable, cell, plain_console, written
from pytest_npubench.reports.number_text import Scale, figure, scale

NARROWEST = 100


def rendered(answer: Mapping[str, Any]) -> str:
    """As text that ends in a line break, at least 100 columns wide; `answer` is what --json prints."""
    width = max(shutil.get_terminal_size((NARROWEST, 24)).columns, NARROWEST)
    console = plain_console(width)
    for name, words in heading(answer):
        console.print(cell(f"{name:9}  {words}"))
    for runs in _by_rate(answer["runs"]):
        console.print(_table(runs))
        for run in runs:
            for words in run.get("beyond", ()):
                console.print(cell(f"{run['policy']}: beyond what was calibrated on, band twice as wide: {words}"))
            if outside := run.get("outside"):
                names = ", ".join(outside)
                console.print(
                    cell(f"{run['policy']}: measured outside the band: {names}; this cost holds here no longer")
                )
    return written(console)


def heading(answer: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What was simulated: names and words."""
    workload, slo = answer["workload"], answer["slo"]
    limits = f"TTFT {slo['ttft_s']:g} s, every TBT {slo['tbt_s'] * 1e3:g} ms ({slo['source']})" if slo else "none given"
    dropped = (
        f", {workload['num_dropped']} longer than the context or the KV capacity dropped"
        if workload["num_dropped"]
        else ""
    )
    devices = f"{answer['tensor_parallel']} x {answer['hardware']}"
    if answer["pipeline_parallel"] > 1:
        devices = f"{answer['pipeline_parallel']} stages of {devices}"
    if answer["data_parallel"] > 1:
        shared = ", experts shared" if answer["expert_parallel"] else ""
        devices = f"{answer['data_parallel']} replicas of {devices}{shared}, each with"
    else:
        devices += ","
    return [
        ("clock", f"{answer['clock']}: {answer['definition']}"),
        (
            "system",
            f"{answer['model']} in {answer['dtype']} on {devices} {answer['kv_capacity_tokens']} tokens of KV cache",
        ),
        ("workload", f"{workload['name']}: {workload['num_requests']} requests, seed {answer['seed']}{dropped}"),
        *((("taken", workload["taken"]),) if workload["taken"] else ()),
        ("SLO", limits),
        *(("winner", words) for words in answer["winners"]),
        *(("doubt", words) for words in answer["doubts"]),
    ]


def _by_rate(runs: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    groups: dict[float | None, list[Mapping[str, Any]]] = {}
    for run in runs:
        groups.setdefault(run["rate_per_s"], []).append(run)
    return list(groups.values())


def _table(runs: Sequence[Mapping[str, Any]]) -> PlainTable:
    table = PlainTable(title=_title(runs[0]), title_justify="left")
    table.add_column("metric", no_wrap=True)
    for run in runs:
        table.add_column(f"{run['policy']}\n{_settings(run['settings'])}", justify="right")
    is_beside = any("measured" in metric for metric in runs[0]["metrics"])
    if is_beside:
        table.add_column("measured", justify="right")
    for rows in zip(*(run["metrics"] for run in runs), strict=True):
        if any(metric["value"] is not None for metric in rows):
            shown_in = scale(rows[0]["unit"], *(metric["value"] for metric in rows))
            measured = [figure(rows[0]["measured"], rows[0]["unit"], shown_in)] if is_beside else []
            table.add_row(rows[0]["name"], *(_cell(metric, shown_in) for metric in rows), *measured)
    return table


def _title(run: Mapping[str, Any]) -> str:
    asked = "arrivals replayed" if run["rate_per_s"] is None else f"{run['rate_per_s']:g} requests/s asked for"
    cv = run["realised_cv"]
    spread = f", CV {cv:.2f}" if cv is not None else ""
    rate = run["realised_rate_per_s"]
    return f"{asked}, {rate:.3f} realised{spread}" if rate is not None else asked


def _settings(settings: Mapping[str, Any]) -> str:
    return "\n".join(f"{name} {'auto' if value is None else value}" for name, value in settings.items())


def _cell(metric: Mapping[str, Any], shown_in: Scale) -> str:
    """The figure with its unit, the band, and the error against what was measured."""
    text = figure(metric["value"], metric["unit"], shown_in)
    if metric.get("low") is not None and metric["low"] != metric["high"]:
        low, high = (figure(metric[side], metric["unit"], shown_in).split(" ")[0] for side in ("low", "high"))
        text += f" ({low} to {high})"
    if metric.get("error") is not None:
        text += f" {metric['error']:+.1%}"
    return text
