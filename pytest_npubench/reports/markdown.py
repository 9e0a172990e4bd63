"""A run as Markdown, for GitHub's step summary and for a comment on a pull request (GitHub Flavored Markdown).

What needs a person stands first; the cases that say nothing new are folded away.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npubench.plain_text import plain
from pytest_npubench.reports.run_rows import (
    NOTHING_TO_SAY,
    WITHOUT_BASELINE,
    RunRow,
    metric_rows,
    run_rows,
    worst_first,
)
from pytest_npubench.reports.terminal import NARROWEST, next_lines, reason_lines, summary_lines
from pytest_npubench.verdict.case_record import Cases

if TYPE_CHECKING:
    from pytest_npubench.reports.page import ShownBy

FOLDED = NOTHING_TO_SAY | WITHOUT_BASELINE
MOST_ROWS = 2000  # GitHub takes 1 MiB of step summary
HEADER = "| case | figure | quartile | error | change | 95 % interval | verdict |\n|---|---|--:|--:|--:|---|---|\n"
SPECIAL = "\\`*_{}[]<>#|~&"


def run_markdown(
    records: Sequence[Mapping[str, Any]], shown_by: ShownBy, *, journal: Path, baselines: Path | None = None
) -> str:
    """A heading that says how it went, the cases that need a look, all others, reasons, and what to type next."""
    cases = Cases.read(records)
    rows = run_rows(cases)
    seen = [row for row in rows if row.verdict.kind not in FOLDED]
    rest = [row for row in rows if row.verdict.kind in FOLDED]
    lines = summary_lines(records, shown_by)
    parts = [f"## npubench: {escaped(_headline(rows))}\n"]
    if seen:
        parts.append(HEADER + "".join(map(_line, seen[:MOST_ROWS])))
    if why := reason_lines(rows, journal, width=10_000):
        parts.append("".join(f"- {escaped(line)}\n" for line in why))
    if rest:
        title = f"<details><summary>{len(rest)} more cases</summary>\n\n"
        parts.append(title + HEADER + "".join(map(_line, rest[:MOST_ROWS])) + "\n</details>\n")
    if left_out := max(0, len(seen) - MOST_ROWS) + max(0, len(rest) - MOST_ROWS):
        parts.append(f"{left_out} cases are left out here; the journal has them.\n")
    parts.append(_code(lines))
    parts.append(_code(next_lines(records, journal, width=NARROWEST, baselines=baselines)))
    return "\n".join(parts)


def escaped(text: object) -> str:
    """The text in one line, with nothing in it that Markdown would obey."""
    return "".join(f"\\{sign}" if sign in SPECIAL else sign for sign in plain(text))


def _headline(rows: Sequence[RunRow]) -> str:
    """The number of cases by verdict, worst first: what was held against nothing is not called good."""
    ordered = sorted(rows, key=lambda row: worst_first(row.verdict.kind))
    return ", ".join(f"{number} {name}" for name, number in Counter(row.record.outcome for row in ordered).items())


def _line(row: RunRow) -> str:
    """A case, and below it its metrics where not all have its verdict."""
    rows = (
        (
            *(shown.name, shown.figure or "", shown.quartile_text, shown.error_text),
            *(shown.change_text, shown.interval_text, shown.kind),
        )
        for shown in (row, *metric_rows(row.record))
    )
    return "".join(f"| {' | '.join(map(escaped, cells))} |\n" for cells in rows)


def _code(lines: Sequence[str]) -> str:
    """A block as it stands, fenced by more backticks than any of its lines has."""
    text = "\n".join(map(plain, lines))
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}\n{fence}\n" if lines else ""
