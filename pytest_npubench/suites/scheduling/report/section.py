"""What a serving campaign's section of a report shows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import accumulate
from statistics import fmean

from pytest_npubench.reports import definitions, number_text
from pytest_npubench.reports.campaign_sections import sentences
from pytest_npubench.reports.drift import drift_chart
from pytest_npubench.reports.page import Parts, Table
from pytest_npubench.reports.record_fields import Record, numbers, table
from pytest_npubench.reports.reported import conditions, label, reported
from pytest_npubench.reports.served_loads import ServedFigure, ServedLoad, ServedPolicy, served_loads
from pytest_npubench.suites.scheduling.report.charts import scheduling_charts
from pytest_npubench.suites.scheduling.report.experiment_tables import experiment_tables
from pytest_npubench.suites.scheduling.report.lines import comparison_lines, vllm_policy_lines
from pytest_npubench.suites.scheduling.report.policy_tables import burst_tables, policy_table


def parts(records: Sequence[Record], rounds: Sequence[Record]) -> Parts:
    drift = drift_chart(served_rounds(rounds), definitions.SERVING_DRIFT)
    charts = (*scheduling_charts(records), *(() if drift is None else (drift,)))
    loads = served_loads(records)
    of_loads = (made for load in loads for made in (latency_table(load), policy_table(load)))
    tables = (*of_loads, *experiment_tables(records), *burst_tables(records))
    return charts, tables, sentences([*comparison_lines(records), *vllm_policy_lines(records)])


TOKEN_TIMES = "request.token_times_s"
REPEATED = ("prefill_s", "step_s")
SERVED = re.compile(r"([^(/]+)\((.*?)\)/(.+)")


def served_rounds(rounds: Iterable[Record]) -> tuple[Record, ...]:
    """The rounds with one figure a point, for the chart of their drift.

    A round holds every time point of every request; what can be followed from round to round is the mean TTFT of a
    block, the prefill of a prompt and a decode step.

    Worked example: "layered(tokens_per_iteration=64)/layered-arxiv@r1.3/request.arrival_s" of (0, 1), output tokens
    (2, 1) and token times (0.5, 0.6, 2.0) make the point "layered/layered-arxiv@r1.3 (tokens_per_iteration=64)" of
    0.75 s.
    """
    return tuple({"round": record["round"], "points": _points(table(record, "points"))} for record in rounds)


def _points(columns: Record) -> dict[str, Sequence[float]]:
    found: dict[str, Sequence[float]] = {}
    for column in columns:
        point, _, name = column.rpartition("/")
        if name == TOKEN_TIMES:
            found[_shown(point)] = _mean_ttft_s(columns, point)
        elif name in REPEATED:
            found[point] = numbers(columns, column)
    return found


def _mean_ttft_s(columns: Record, point: str) -> tuple[float, ...]:
    """One value, none where the columns do not fit together; tokens of all requests stand in one row, in order."""
    arrivals_s, counts = (numbers(columns, f"{point}/request.{name}") for name in ("arrival_s", "output_tokens"))
    times_s = numbers(columns, f"{point}/{TOKEN_TIMES}")
    if not counts or min(counts) < 1 or len(counts) != len(arrivals_s) or sum(counts) != len(times_s):
        return ()
    firsts = [0, *accumulate(map(int, counts))]
    mean_s = fmean(times_s[first] - at_s for first, at_s in zip(firsts, arrivals_s, strict=False))
    return (mean_s,) if mean_s > 0 else ()


def _shown(point: str) -> str:
    """The policy first, which gives the line its colour, its settings last."""
    match = SERVED.fullmatch(point)
    if match is None:
        return point
    policy, settings, load = match.groups()
    return f"{policy}/{load} ({settings})" if settings else f"{policy}/{load}"


PARTS = ("mean", "p50", "p95", "p99")
TIMES = ("ttft", "tbt", "e2e")
REPORTED = {  # of Table 6, and of section 5.5: the column and what makes milliseconds of it
    "ttft": ("6", "ttft_{}", 1e3),
    "tbt": ("6", "tbt_{}", 1.0),
    "e2e": ("5.5", "e2e_{}", 1e3),
}
NO_BREAK = "\u00a0"  # a cell breaks before its interval, not inside


def latency_table(load: ServedLoad) -> Table | None:
    """A row for each latency and policy, and one more where the paper reports that policy; None without latencies."""
    rows = [row for time in TIMES for row in _rows(time, load.policies)]
    if not rows:
        return None
    theirs = label(conditions("6"), conditions("5.5"), definitions.POLICY_REPORTED)
    return Table(
        caption=f"Latencies under {load.name}",
        note=f"{definitions.LATENCY} {theirs}",
        header=("latency, ms", "policy", *PARTS, "n", "rests on"),
        rows=tuple(rows),
    )


def _rows(time: str, policies: Sequence[ServedPolicy]) -> list[tuple[str, ...]]:
    rows = []
    for item in policies:
        figures = [item.figures.get(f"{time}_{part}_s") for part in PARTS]
        known = [figure for figure in figures if figure is not None]
        if known:
            rows.append(
                (
                    time.upper(),
                    item.policy,
                    *map(_cell, figures),
                    number_text.count(known[0].num_samples),
                    _notes(dict(zip(PARTS, figures, strict=True))),
                )
            )
            rows += _reported(time, item.policy)
    return rows


def _reported(time: str, policy: str) -> list[tuple[str, ...]]:
    if time not in REPORTED:
        return []
    number, column, factor = REPORTED[time]
    cells = [reported(number, column.format(part), factor, policy=policy) for part in PARTS]
    if set(cells) == {number_text.UNKNOWN}:
        return []
    return [(time.upper(), f"{policy},{NO_BREAK}reported", *cells, number_text.UNKNOWN, "")]


def _cell(figure: ServedFigure | None) -> str:
    if figure is None or figure.value is None:
        return "unavailable" if figure is not None else number_text.UNKNOWN
    if figure.interval is None:
        return number_text.milliseconds(figure.value)
    low, high = map(number_text.milliseconds, figure.interval)
    return f"{number_text.milliseconds(figure.value)} ({low}{NO_BREAK}to{NO_BREAK}{high})"


def _notes(figures: dict[str, ServedFigure | None]) -> str:
    """Each note once, with the columns it is about: "p99: the maximum: fewer than 100 samples"."""
    parts: dict[str, list[str]] = {}
    for part, figure in figures.items():
        for note in (figure.note if figure is not None else "").split("; "):
            if note:
                parts.setdefault(note, []).append(part)
    return "; ".join(note if len(own) == len(PARTS) else f"{', '.join(own)}: {note}" for note, own in parts.items())
