"""A comparison of two stacks as text: what changed in the stack, what canaries and suite did, then the cases. Its page
is in reports/comparison_page.py.

Cases that moved on their own stand before those that only moved as the suite did; what did not change is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from pytest_npubench.comparison.members import Missing
from pytest_npubench.comparison.outcome import Comparison, Row
from pytest_npubench.core.plain_table import PlainTable, cell, plain_console, written
from pytest_npubench.plain_text import counted, plain
from pytest_npubench.reports import report_extra
from pytest_npubench.reports.number_text import figures
from pytest_npubench.verdict import Verdict, VerdictKind
from pytest_npubench.verdict.wording import visible

STYLES = {
    VerdictKind.REGRESSED: "bold red",
    VerdictKind.IMPROVED: "green",
    VerdictKind.UNCHANGED: "green",
    VerdictKind.INVALID: "bold magenta",
}
GROUPS = (
    (VerdictKind.REGRESSED, False, "regressed"),
    (VerdictKind.REGRESSED, True, "regressed as the suite did"),
    (VerdictKind.IMPROVED, False, "improved"),
    (VerdictKind.IMPROVED, True, "improved as the suite did"),
    (VerdictKind.INCONCLUSIVE, None, "inconclusive"),
    (VerdictKind.NO_BASELINE, None, "no baseline"),
    (VerdictKind.INCOMPARABLE, None, "incomparable"),
    (VerdictKind.INVALID, None, "invalid"),
)
NARROWEST = 100
NARROWEST_NAME = 30


def render_comparison(comparison: Comparison, *, width: int, color: bool) -> str:
    """The comparison is text at least 100 columns wide, with terminal colours where asked for."""
    console = plain_console(max(width, NARROWEST), color=color)
    _print(console, comparison)
    return written(console)


def comparison_html(comparison: Comparison) -> str:
    """The comparison is a page of its own that loads nothing. Raises ConfigError without the report extra."""
    with report_extra():
        from pytest_npubench.reports.comparison_page import comparison_page
    return comparison_page(comparison)


def comparison_json(comparison: Comparison, status: int) -> dict[str, Any]:
    """The comparison is plain data: ratios and intervals are B / A, differences where the metric is judged by those."""
    return {
        "exit_status": status,
        "a": asdict(comparison.old),
        "b": asdict(comparison.new),
        "stack": list(comparison.stack),
        "canary": _verdict_json(comparison.canary) if comparison.canary else None,
        "canaries": [row_json(row) for row in comparison.canaries],
        "answers": [row_json(row) for row in comparison.answers],
        "other_answers": list(comparison.other_answers),
        "suites": [{"unit": name, **_verdict_json(verdict)} for name, verdict in comparison.suites],
        "cases": [row_json(row) for row in comparison.rows],
        "only_a": [asdict(item) for item in comparison.only_old],
        "only_b": [asdict(item) for item in comparison.only_new],
        "undecided_fraction": comparison.undecided_fraction,
        "notes": list(comparison.notes),
    }


def _print(console: Console, comparison: Comparison) -> None:
    for name, side in (("A", comparison.old), ("B", comparison.new)):
        console.print(cell(f"{name}  {side.label} ({counted(side.num_sessions, 'session')}), {side.days}"))
    for note in comparison.notes:
        console.print(cell(f"   {note}", "yellow"))
    _heading(console, "what changed in the stack")
    for line in comparison.stack or ("nothing that is known",):
        console.print(cell(f"   {line}"))
    _heading(console, "the suite as a whole")
    _verdict_line(console, "canary kernels", comparison.canary, "no canary case is on both sides")
    for name, verdict in comparison.suites:
        _verdict_line(console, f"all cases ({name})", verdict)
    if not comparison.suites:
        console.print(cell("   all cases: too few cases or sessions to tell what they have in common"))
    _canaries(console, comparison.canaries)
    _answers(console, comparison.answers)
    for kind, with_suite, title in GROUPS:
        _group(console, title, comparison.of_kind(kind, with_suite=with_suite))
    _missing(console, "only in A: no longer measured", comparison.only_old)
    _missing(console, "only in B: new", comparison.only_new)
    console.print()
    console.print(cell(_counts(comparison), "bold"))


def _heading(console: Console, text: str) -> None:
    console.print()
    console.print(cell(text, "bold"))


def _verdict_line(console: Console, name: str, verdict: Verdict | None, otherwise: str = "") -> None:
    line = cell(f"   {name}: ")
    if verdict is None:
        line.append(plain(otherwise))
    else:
        line.append(verdict.kind.value, style=STYLES.get(verdict.kind, "yellow"))
        line.append(f"; {plain(verdict.reason)}")
    console.print(line)


def _canaries(console: Console, rows: Sequence[Row]) -> None:
    """Canary kernels are listed where they moved, or could not be decided."""
    moved = [row for row in rows if row.kind is not VerdictKind.UNCHANGED]
    if moved:
        _heading(console, f"canary kernels ({len(moved)} of {len(rows)})")
        console.print(_table(moved))


def _answers(console: Console, rows: Sequence[Row]) -> None:
    """What models answer: those that are not the same by name."""
    if rows:
        unchanged = sum(row.kind is VerdictKind.UNCHANGED for row in rows)
        _heading(console, f"answers of models ({unchanged} of {len(rows)} unchanged)")
        for row in rows:
            if row.kind is not VerdictKind.UNCHANGED:
                _verdict_line(console, row.name, row.verdict)


def _group(console: Console, title: str, rows: Sequence[Row]) -> None:
    if rows:
        _heading(console, f"{title} ({len(rows)})")
        console.print(_table(sorted(rows, key=lambda row: row.size, reverse=True)))


def _table(rows: Sequence[Row]) -> PlainTable:
    """Figures where there are any; the reason in words where the figures do not tell it."""
    table = PlainTable(box=None, pad_edge=True, header_style="dim")
    table.add_column(
        "case and metric", overflow="fold", min_width=min(NARROWEST_NAME, max(len(row.title) for row in rows))
    )
    if with_figures := any(row.verdict.ratio is not None for row in rows):
        for name in ("A", "B", "B / A", "95 % interval", "detectable"):
            table.add_column(name, justify="right", no_wrap=True)
    if with_words := any(row.verdict.interval is None for row in rows):
        table.add_column("why", min_width=16)
    for row in rows:
        words = [cell("" if row.verdict.interval else row.verdict.reason)] if with_words else []
        table.add_row(row.title, *(_figures(row) if with_figures else ()), *words)
    return table


def _figures(row: Row) -> tuple[str | Text, ...]:
    verdict = row.verdict
    return (
        *figures((row.before, row.after), row.definition.unit),
        cell(_ratio(row, verdict.ratio), STYLES.get(row.kind, "")),
        _interval(row),
        "" if verdict.mde is None else visible(verdict.mde),
    )


def _ratio(row: Row, value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:+.4f}" if row.definition.gate == "difference" else f"x{value:.3f}"


def _interval(row: Row) -> str:
    if row.verdict.interval is None:
        return ""
    return " to ".join(_ratio(row, end) for end in row.verdict.interval)


def _missing(console: Console, title: str, items: Sequence[Missing]) -> None:
    if items:
        _heading(console, f"{title} ({len(items)})")
        for item in items:
            console.print(cell(f"   {item.name}{f' ({item.reason})' if item.reason else ''}"))


def _counts(comparison: Comparison) -> str:
    kinds = [row.kind for row in comparison.counted]
    counts = [f"{kinds.count(kind)} {kind.value}" for kind in VerdictKind if kind in kinds]
    gone = [f"{len(comparison.only_old)} gone"] if comparison.only_old else []
    what = counted(len(kinds), "metric")
    if comparison.counted == comparison.canaries:
        what = f"{counted(len(kinds), 'canary', 'canaries')} and nothing else"
    not_safe = (
        f"other answers, so not safe: {', '.join(comparison.other_answers)}; " if comparison.other_answers else ""
    )
    undecided = f"{comparison.num_undecided} of {comparison.num_compared} undecided"
    return f"{not_safe}{what}: {', '.join([*counts, *gone])}; {undecided}"


def row_json(row: Row) -> dict[str, Any]:
    """A metric with its levels, its verdict and its ratio is plain data."""
    return {
        "case": row.definition.case,
        "metric": row.definition.metric,
        "unit": row.definition.unit,
        "before": row.before,
        "after": row.after,
        "with_suite": row.with_suite,
        "other_answers": row.other_answers,
        **_verdict_json(row.verdict),
    }


def _verdict_json(verdict: Verdict) -> dict[str, Any]:
    return {
        "verdict": verdict.kind.value,
        "reason": verdict.reason,
        "ratio": verdict.ratio,
        "interval": verdict.interval,
        "mde": verdict.mde,
    }
