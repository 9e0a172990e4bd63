"""The summary table: what, measured, predicted, error, verdict, why. Milliseconds here, seconds everywhere else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_npubench.core.plain_table import PlainTable, cell, plain_console, written
from pytest_npubench.plain_text import plain
from pytest_npubench.reports.record_fields import Record, number, suite_of, table, text, what_of

if TYPE_CHECKING:
    from pytest_npubench.reports.page import ShownBy

STYLES = {
    "passed": "green",
    "unchanged": "green",
    "improved": "bold green",
    "failed": "bold red",
    "regressed": "bold red",
    "invalid": "bold magenta",
}
NARROWEST = 80
LINE_WIDTH = 100
FIGURES = ("measured ms", "predicted ms", "error %", "repeat %")
PREDICTED = ("predicted ms", "error %")
"""Columns that stand only where a case has them: a run that predicts nothing needs the room."""


def render_table(records: Sequence[Record], *, width: int, color: bool) -> str:
    """The table as text, at least 80 columns wide: long names fold; with terminal colours where asked for."""
    table = PlainTable(box=None, pad_edge=False, header_style="bold")
    table.add_column("case", overflow="fold", min_width=14)
    table.add_column("what", min_width=10)
    figures = [name for name in FIGURES if name not in PREDICTED or any(_figure(record, name) for record in records)]
    for name in figures:
        table.add_column(name, justify="right", width=max(len("-12.34"), *map(len, name.split())))
    is_compared = any(record["verdict"]["ratio"] is not None for record in records)
    if is_compared:
        table.add_column("change %", justify="right", width=8)
    table.add_column("verdict", width=12)
    table.add_column("why", min_width=12)
    for record in records:
        kind = record["verdict"]["kind"]
        verdict = f"{kind} (resumed)" if record.get("resumed") else kind
        table.add_row(
            record["id"] if record["device"].endswith(":0") else f"{record['id']} on {record['device']}",
            what_of(record),
            *(_figure(record, name) for name in figures),
            *([_change(record["verdict"])] if is_compared else []),
            cell(verdict, STYLES.get(kind, "yellow")),
            record["verdict"]["reason"],
        )
    console = plain_console(max(width, NARROWEST), color=color)
    console.print(table)
    return written(console)


def summary_lines(records: Sequence[Record], shown_by: ShownBy) -> list[str]:
    """What each suite says of its cases, short calls of one's own, verdict counts; what is longer than 100 columns goes
    on in an indented line."""
    lines: list[str] = []
    for suite in dict.fromkeys(map(suite_of, records)):
        lines += shown_by(suite).lines([record for record in records if suite_of(record) == suite])
    lines += own_lines(records)
    kinds = Counter(record["verdict"]["kind"] for record in records)
    lines.append("verdicts: " + ", ".join(f"{number} {kind}" for kind, number in kinds.most_common()))
    return [part for line in lines for part in _folded(plain(line))]


def _folded(line: str) -> list[str]:
    """The line in lines of at most LINE_WIDTH columns, broken behind a comma or before a bracket."""
    cut = max(line.rfind(mark, 0, LINE_WIDTH) for mark in (", ", "; ", " (")) + 1
    if len(line) <= LINE_WIDTH or cut <= len("  "):
        return [line]
    return [line[:cut].rstrip(), *_folded(f"  {line[cut:].lstrip()}")]


def _figure(record: Record, name: str) -> str:
    """A cell of one of FIGURES, empty where the case has none."""
    if name == "error %":
        return _percent(record["error"], signed=record["predicted_s"] is not None)
    if name == "repeat %":
        return _percent(record["repeat_error"])
    return _milliseconds(record["measured_s" if name == "measured ms" else "predicted_s"])


def _change(verdict: Record) -> str:
    """The metric that decided, against its accepted sessions."""
    return "" if verdict["ratio"] is None else f"{(verdict['ratio'] - 1) * 100:+.2f}"


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.4g}" if seconds < 1 else f"{seconds * 1e3:.0f}"


def _percent(fraction: float | None, *, signed: bool = False) -> str:
    return "" if fraction is None else f"{fraction * 100:+.2f}" if signed else f"{fraction * 100:.2f}"


def own_lines(records: Sequence[Record]) -> list[str]:
    """One line, for the calls that were timed several to a sample; none where there are none."""
    shares = [(share, text(record, "id")) for record in records if (share := _overhead_fraction(record)) is not None]
    if not shares:
        return []
    share, case = max(shares)
    cases = "1 case" if len(shares) == 1 else f"{len(shares)} cases"
    return [
        f"several calls a sample: {cases}; an empty call in the same loop takes at most {share:.1%} of one ({case})"
    ]


def _overhead_fraction(record: Record) -> float | None:
    detail, measured_s = table(record, "detail"), number(record, "measured_s")
    iterations, overhead_s = number(detail, "iterations"), number(detail, "overhead_s")
    if suite_of(record) != "own" or not measured_s or overhead_s is None or not iterations or iterations == 1:
        return None
    return overhead_s / measured_s
