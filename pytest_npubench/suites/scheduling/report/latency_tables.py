"""Latencies of all policies under one load: mean, p50, p95 and p99 side by side, the paper's below its policies."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_npubench.reports import definitions, number_text
from pytest_npubench.reports.page import Table
from pytest_npubench.reports.reported import conditions, label, reported
from pytest_npubench.reports.served_loads import Figure, ServedLoad, ServedPolicy

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


def _cell(figure: Figure | None) -> str:
    if figure is None or figure.value is None:
        return "unavailable" if figure is not None else number_text.UNKNOWN
    if figure.interval is None:
        return number_text.milliseconds(figure.value)
    low, high = map(number_text.milliseconds, figure.interval)
    return f"{number_text.milliseconds(figure.value)} ({low}{NO_BREAK}to{NO_BREAK}{high})"


def _notes(figures: dict[str, Figure | None]) -> str:
    """Each note once, with the columns it is about: "p99: the maximum: fewer than 100 samples"."""
    parts: dict[str, list[str]] = {}
    for part, figure in figures.items():
        for note in (figure.note if figure is not None else "").split("; "):
            if note:
                parts.setdefault(note, []).append(part)
    return "; ".join(note if len(own) == len(PARTS) else f"{', '.join(own)}: {note}" for note, own in parts.items())
