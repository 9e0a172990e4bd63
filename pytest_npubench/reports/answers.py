"""What an answers case shows: how far answers lie from float64, and from each other where they mean the same."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_npubench.campaign.answer_judgement import AnswersDetail
from pytest_npubench.reports import build, number_text
from pytest_npubench.reports.page import Table
from pytest_npubench.verdict.case_record import CaseRecord

NOTE = (
    "Distances of the logits of 16 fixed tokens at a position, over their spread. Allowed is a multiple of what "
    "rounding does; pairs that mean the same must be nearer than that, and answers to changed prompts farther."
)
Row = tuple[str, str, str]


def answers_table(found: Sequence[CaseRecord[AnswersDetail]]) -> Table | None:
    """A row for the reference and for each kind of pair; None without any."""
    rows = [row for case in found for row in _rows(case.detail)]
    if not rows:
        return None
    return Table(caption="Answers", header=("", "distance", "allowed"), rows=tuple(rows), note=NOTE)


def _rows(detail: AnswersDetail) -> list[Row]:
    limit, most = number_text.plain(detail.limit), number_text.plain(detail.largest_limit)
    error, largest = build.plain(detail.error), build.plain(detail.largest_error)
    return [
        (f"from float64 in {detail.dtype}, root mean square", error, f"up to {limit}"),
        ("from float64, largest", largest, f"up to {most}"),
        *((name, number_text.plain(apart), f"up to {most}") for name, apart in detail.farthest.items()),
        *((f"changed {name}", number_text.plain(apart), f"above {most}") for name, apart in detail.nearest.items()),
    ]
