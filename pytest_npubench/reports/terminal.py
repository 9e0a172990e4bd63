"""The summary table: what, measured, predicted, error, verdict, why. Milliseconds here, seconds everywhere else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_npubench.core.plain_table import PlainTable, cell, plain_console, written
from pytest_npubench.plain_text import plain
from pytest_npubench.reports.page import ShownBy
from pytest_npubench.verdict import Verdict
from pytest_npubench.verdict.case_record import Cases
from pytest_npubench.verdict.result import CallDetail, Judgement

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


def render_table(records: Sequence[Mapping[str, Any]], *, width: int, color: bool) -> str:
    """The table of these case records as text, at least 80 columns wide: long names fold; with terminal colours where
    asked for."""
    cases = Cases.read(records).records
    table = PlainTable(box=None, pad_edge=False, header_style="bold")
    table.add_column("case", overflow="fold", min_width=14)
    table.add_column("what", min_width=10)
    rows = [_figures(record.judgement) for record in cases]
    figures = [name for name in FIGURES if name not in PREDICTED or any(row[name] for row in rows)]
    for name in figures:
        table.add_column(name, justify="right", width=max(len("-12.34"), *map(len, name.split())))
    is_compared = any(record.judgement.verdict.ratio is not None for record in cases)
    if is_compared:
        table.add_column("change %", justify="right", width=8)
    table.add_column("verdict", width=12)
    table.add_column("why", min_width=12)
    for record, row in zip(cases, rows, strict=True):
        verdict = record.judgement.verdict
        kind = verdict.kind.value
        table.add_row(
            record.shown_id,
            record.what,
            *(row[name] for name in figures),
            *([_change(verdict)] if is_compared else []),
            cell(f"{kind} (resumed)" if record.resumed else kind, STYLES.get(kind, "yellow")),
            verdict.reason,
        )
    console = plain_console(max(width, NARROWEST), color=color)
    console.print(table)
    return written(console)


def summary_lines(records: Sequence[Mapping[str, Any]], shown_by: ShownBy) -> list[str]:
    """What each suite says of its cases, short calls of one's own, what cannot be read, verdict counts; what is longer
    than 100 columns goes on in an indented line."""
    cases = Cases.read(records)
    lines: list[str] = []
    for suite, own in cases.by(lambda record: record.suite).items():
        lines += [*shown_by(suite).lines(own), *(_own_lines(own) if suite == "own" else ()), *dict.fromkeys(own.unread)]
    lines += cases.unread
    kinds = Counter(record.judgement.verdict.kind.value for record in cases.records)
    lines.append("verdicts: " + ", ".join(f"{number} {kind}" for kind, number in kinds.most_common()))
    return [part for line in lines for part in _folded(plain(line))]


def _folded(line: str) -> list[str]:
    """The line in lines of at most LINE_WIDTH columns, broken behind a comma or before a bracket."""
    cut = max(line.rfind(mark, 0, LINE_WIDTH) for mark in (", ", "; ", " (")) + 1
    if len(line) <= LINE_WIDTH or cut <= len("  "):
        return [line]
    return [line[:cut].rstrip(), *_folded(f"  {line[cut:].lstrip()}")]


def _figures(said: Judgement) -> dict[str, str]:
    """The cells of FIGURES, empty where the case has none."""
    cells = (
        _milliseconds(said.measured_s),
        _milliseconds(said.predicted_s),
        _percent(said.error, signed=said.predicted_s is not None),
        _percent(said.repeat_error),
    )
    return dict(zip(FIGURES, cells, strict=True))


def _change(verdict: Verdict) -> str:
    """The metric that decided, against its accepted sessions."""
    return "" if verdict.ratio is None else f"{(verdict.ratio - 1) * 100:+.2f}"


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.4g}" if seconds < 1 else f"{seconds * 1e3:.0f}"


def _percent(fraction: float | None, *, signed: bool = False) -> str:
    return "" if fraction is None else f"{fraction * 100:+.2f}" if signed else f"{fraction * 100:.2f}"


def _own_lines(cases: Cases) -> list[str]:
    """One line, for the calls that were timed several to a sample; none where there are none."""
    shares = [
        (record.detail.overhead_s / record.judgement.measured_s, record.id)
        for record in cases.of("callable", CallDetail)
        if record.detail.iterations > 1 and record.judgement.measured_s
    ]
    if not shares:
        return []
    share, case = max(shares)
    counted = "1 case" if len(shares) == 1 else f"{len(shares)} cases"
    return [
        f"several calls a sample: {counted}; an empty call in the same loop takes at most {share:.1%} of one ({case})"
    ]
