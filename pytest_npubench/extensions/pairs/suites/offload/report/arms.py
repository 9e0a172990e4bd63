"""Rows of arms as the tables of several experiments show them, and what their errors are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_npubench.extensions.pairs.offload.summaries import ComparedArm, RowT
from pytest_npubench.reports.build import ratio

ERROR = "Relative errors are numerical ones of made-up tensors against float32, no model's accuracy."


def by_arm(rows: Sequence[RowT]) -> dict[str, dict[str, RowT]]:
    """arm -> setting -> its row, in their order."""
    found: dict[str, dict[str, RowT]] = {}
    for row in rows:
        found.setdefault(row.arm, {})[row.setting] = row
    return found


def settings_of(arms: Mapping[str, Mapping[str, object]]) -> list[str]:
    return list(dict.fromkeys(setting for rows in arms.values() for setting in rows))


def over(row: ComparedArm) -> str:
    low, high = row.over_interval or (None, None)
    return ratio(row.over, None if low is None or high is None else (low, high))
