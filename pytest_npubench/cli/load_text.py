"""What `npubench load` tells people: the load of one rate with every metric, or a sweep with a line a rate."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytest_npubench.core.plain_table import PlainTable, cell, plain_console, written
from pytest_npubench.reports.number_text import figures, milliseconds, plain, time

NARROWEST = 100
TIMES = ("ttft_mean_s", "ttft_p99_s", "tbt_p99_s", "e2e_mean_s")


def rendered(answer: Mapping[str, Any]) -> str:
    """Renders an answer as text of lines of 100 columns or more; `answer` is what --json prints."""
    width = max(shutil.get_terminal_size((NARROWEST, 24)).columns, NARROWEST)
    console = plain_console(width)
    table = _sweep_table if "capacity" in answer else _table
    for name, words in heading(answer):
        console.print(cell(f"{name:11}{words}"))
    console.print(table(answer))
    return written(console)


def heading(answer: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What was asked, and what it comes to: names and words. A line without a name goes on with the one before."""
    server, at = answer["server"], f"{answer['rate_per_s']:g} a second" if "rate_per_s" in answer else "each rate"
    asked = (
        f"{answer['num_requests']} of {answer['workload']} at {at}, seed {answer['seed']}, {answer['api']} API, "
        f"prompts of {answer['prompt']}"
    )
    return [
        ("server", f"{server['name']} by {server['software'] or 'unknown software'} at {server['url']}"),
        ("requests", asked),
        *(_of_sweep(answer) if "capacity" in answer else _of_rate(answer)),
    ]


def _of_rate(answer: Mapping[str, Any]) -> list[tuple[str, str]]:
    client = answer["client"]
    failures = "; ".join(f"{number} {name}" for name, number in answer["failures"].items()) or "none"
    counted = "; ".join(f"{number} by {name}" for name, number in answer["counted_by"].items())
    late = [client[name] for name in ("dispatch_lag_p99_s", "loop_stall_p99_s", "loop_stall_worst_s")]
    lag, stall, worst = figures(late, "s")
    return [
        ("failed", failures),
        *(("", reason) for reason in answer["reasons"].values()),
        ("counted", counted or "none"),
        *(("remark", line) for line in _remark_lines(answer)),
        ("client", f"dispatch lag {lag} and loop stalls {stall} at p99, worst stall {worst}"),
        ("its own", _own_figures(answer["server_says"])),
        ("SLO", _limits_text(answer)),
    ]


def _own_figures(says: Mapping[str, Any]) -> str:
    from pytest_npubench.suites.server.own_figures import OwnFigures

    return says["why"] or OwnFigures(**{name: value for name, value in says.items() if name != "why"}).in_words


def _remark_lines(answer: Mapping[str, Any]) -> Iterator[str]:
    from pytest_npubench.suites.server.blocks import IN_ONE_PIECE

    total = answer["num_requests"]
    for text, counted in answer["remarks"].items():
        amount = f" ({counted['number']} in all)" if counted["number"] != counted["answers"] else ""
        yield f"{counted['answers']} of {total} answers: {text}{amount}"
    if answer["in_one_piece"]:
        yield f"{answer['in_one_piece']} of {total} answers: {IN_ONE_PIECE}"


def _limits_text(answer: Mapping[str, Any]) -> str:
    slo = answer["slo"]
    if slo is None:
        return "none given"
    attained = next(metric["value"] for metric in answer["metrics"] if metric["name"] == "slo_attainment")
    outcome = "attained" if answer["attained"] else "missed"
    return (
        f"TTFT {time(slo['ttft_s'])} and every TBT {time(slo['tbt_s'])}: {outcome} "
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


def _of_sweep(answer: Mapping[str, Any]) -> list[tuple[str, str]]:
    slo, capacity = answer["slo"], answer["capacity"]
    alone, at_once = answer["alone"], answer["at_once"]
    at_knee = next(row for row in answer["rates"] if row["rate_per_s"] == answer["knee_rate_per_s"])
    ttft, e2e, knee_e2e = figures([alone["ttft_mean_s"], alone["e2e_mean_s"], at_knee["e2e_mean_s"]], "s")
    rate = "" if capacity["rate_per_s"] is None else f"{plain(capacity['rate_per_s'])} requests/s, 95 % interval "
    wanted = f"{slo['attainment']:.0%} wanted"
    return [
        ("SLO", f"TTFT {time(slo['ttft_s'])} and every TBT {time(slo['tbt_s'])}: {wanted}"),
        ("alone", f"TTFT {ttft} and E2E {e2e} on average"),
        ("at once", f"{plain(at_once['answered_per_s'])} requests/s, {plain(at_once['output_tokens_per_s'])} tokens/s"),
        ("capacity", f"{rate}{_interval(capacity['interval'])}"),
        ("why", capacity["why"]),
        (
            "knee",
            f"{plain(at_knee['rate_per_s'])} requests/s: {plain(at_knee['answered_per_s'])} answered a second, "
            f"E2E {knee_e2e} on average",
        ),
        *([("client", answer["client"]["late"])] if answer["client"]["late"] else ()),
        *(("its own", line) for line in _own_figures_by_rate(answer["rates"])),
    ]


def _own_figures_by_rate(rates: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line a rate; one alone where the server says nothing at any."""
    if all(row["server_says"]["why"] for row in rates):
        return [rates[0]["server_says"]["why"]]
    return [f"at {plain(row['rate_per_s'])} requests/s {_own_figures(row['server_says'])}" for row in rates]


def _interval(ends: tuple[float | None, float | None] | None) -> str:
    low, high = ends or (None, None)
    if low is None or high is None:
        end = f"below {plain(high)}" if high is not None else f"above {plain(low)}" if low is not None else ""
        return f"{end} requests/s" if end else "unknown"
    return f"{plain(low)} to {plain(high)} requests/s"


def _sweep_table(answer: Mapping[str, Any]) -> PlainTable:
    """Latency against throughput, a line a rate; the TTFT, TBT and E2E in milliseconds."""
    table = PlainTable()
    counts = ("rate/s", "SLO %", "interval", "failed", "done/s", "tokens/s")  # in 100 columns
    for head in (*counts, "TTFT ms", "p99 ms", "TBT p99", "E2E ms"):
        table.add_column(head, justify="right", no_wrap=True)
    for row in answer["rates"]:
        table.add_row(
            plain(row["rate_per_s"]),
            f"{row['attainment'] * 100:.1f}",
            " to ".join(f"{end * 100:.0f}" for end in row["attainment_interval"]),
            str(row["num_failed"]),
            plain(row["answered_per_s"]),
            plain(row["output_tokens_per_s"]),
            *(milliseconds(row[name]) for name in TIMES),
        )
    return table
