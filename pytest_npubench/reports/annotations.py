"""Failing cases as annotations of GitHub Actions: commands on stdout that GitHub shows beside the code.

https://docs.github.com/actions/reference/workflow-commands-for-github-actions: a property's value has %, line breaks,
colons and commas escaped, the message the first two. Worked example:

    ::error file=suites/buckets/test_profile.py,title=profile/b1-bucket16::regressed: 5.1 %25 worse
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytest_npubench.plain_text import plain
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
        properties = {"file": file, "title": f"npubench {row.name}"}
        property_text = ",".join(f"{name}={_property(text)}" for name, text in properties.items() if text)
        lines.append(f"::{level} {property_text}::{_message(f'{row.record.outcome}: {row.verdict.reason}')}")
    return lines


def _message(text: str) -> str:
    return plain(text).replace("%", "%25")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")
