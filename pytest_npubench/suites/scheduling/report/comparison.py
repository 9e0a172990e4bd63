"""Layered beside chunked prefill: the table of a case that compares the two, with the paper's figures.

A ratio is that of pairs of blocks which served the same requests, with the lowest and the highest pair. What the paper
reports stands in columns of its own and enters no ratio of ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pytest_npubench.reports import number_text
from pytest_npubench.reports.build import NO_BREAK, Columns, ratio, table
from pytest_npubench.reports.page import Table
from pytest_npubench.reports.reported import LAYERED_PREFILL, reported
from pytest_npubench.suites.scheduling.report.cells import available
from pytest_npubench.verdict.case_record import CaseRecord

POLICIES = ("layered", "chunked")
Pair = Sequence[str]
"""A cell for each of the two policies; none where there is nothing to say."""


class FigureRow(NamedTuple):
    """A figure under both policies, the ratio of the two, and what the paper reports."""

    figure: str
    ours: Pair = ()
    ratio: str = ""
    theirs: Pair = ()

    @property
    def reported_ratio(self) -> str:
        """Of the printed figures alone."""
        try:
            layered, chunked = (float(cell.replace(",", "")) for cell in self.theirs)
        except ValueError:
            return number_text.UNKNOWN
        return f"{layered / chunked:.3g}" if chunked else number_text.UNKNOWN


def _column(of: str, place: int) -> Any:
    return lambda row: (getattr(row, of) or (number_text.UNKNOWN,) * 2)[place]


COLUMNS: Columns[FigureRow] = (
    ("figure", lambda row: row.figure),
    *((policy, _column("ours", place)) for place, policy in enumerate(POLICIES)),
    ("layered / chunked", lambda row: row.ratio or number_text.UNKNOWN),
    *((f"reported {policy}", _column("theirs", place)) for place, policy in enumerate(POLICIES)),
    ("reported layered / chunked", lambda row: row.reported_ratio),
)


def comparison_table(caption: str, note: str, rows: Sequence[FigureRow]) -> Table:
    """Without the columns that no row has anything in."""
    return table(caption, COLUMNS, rows, note=note, without_unknown=True)


def by_policy(case: CaseRecord[Any], name: str) -> Pair:
    """A metric under each policy, `name` with the policy in its braces."""
    metrics = [case.metric(name.format(policy)) for policy in POLICIES]
    return [available(None if metric is None else metric.value) for metric in metrics]


def reported_by_policy(number_of_table: str, column: str, factor: float = 1.0, **row: float | str) -> Pair:
    return [
        reported(number_of_table, column, factor, paper=LAYERED_PREFILL, policy=policy, **row) for policy in POLICIES
    ]


def ratio_of(
    case: CaseRecord[Any], name: str, interval: tuple[float, float] | None = None, *, inverse: bool = False
) -> str:
    """The ratio with its 95 % interval, else its lowest and highest pair of blocks; or one over it. Empty where it was
    not measured."""
    metric = case.metric(name)
    if metric is None:
        return ""
    value, samples = metric.value, metric.samples
    if inverse:
        if min(value, *samples) <= 0:
            return ""
        value, samples = 1 / value, tuple(1 / sample for sample in samples)
    if interval is not None or len(samples) < 2:
        return ratio(value, interval)
    return f"{value:.3g} (blocks{NO_BREAK}{min(samples):.3g}{NO_BREAK}to{NO_BREAK}{max(samples):.3g})"
