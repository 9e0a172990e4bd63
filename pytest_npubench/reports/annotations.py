"""Failing cases as annotations of GitHub Actions: commands on stdout that GitHub shows beside the code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytest_npubench.plain_text import plain, workflow_command
from pytest_npubench.reports.run_rows import run_rows, worst_first
from pytest_npubench.verdict.case_record import Cases

MOST = 10  # GitHub shows no more errors of a step


def workflow_commands(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """One command for each failing case, worst first; a disturbed one is a warning."""
    nodes = {record["case"]: str(record.get("node") or "") for record in records}
    rows = [row for row in run_rows(Cases.read(records)) if row.verdict.failing]
    rows.sort(key=lambda row: worst_first(row.verdict.kind))
    lines = []
    for row in rows[:MOST]:
        level = "warning" if row.record.judgement.is_disturbed else "error"
        file = nodes[row.record.key].partition("::")[0]
        text = plain(f"{row.record.outcome}: {row.verdict.reason}")
        lines.append(workflow_command(level, text, file=plain(file), title=plain(f"npubench {row.name}")))
    return lines
