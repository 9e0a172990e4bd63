"""Tables with a row for each policy or chunk size, and the paper's figures of it in a row of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_npubench.reports import number_text
from pytest_npubench.reports.build import NO_BREAK
from pytest_npubench.reports.page import Table
from pytest_npubench.reports.reported import LAYERED_PREFILL, reported
from pytest_npubench.suites.scheduling.report.cells import available

Columns = Mapping[str, tuple[str, float, str, float]]
"""Our name of a column: its heading, what turns ours into its unit, the paper's column, what turns theirs into it."""


def settings_table(caption: str, note: str, head: str, columns: Columns, rows: Sequence[tuple[str, ...]]) -> Table:
    header = (head, *(heading for heading, *_ in columns.values()))
    return Table(caption=caption, note=note, header=header, rows=tuple(rows))


def own_cells(columns: Columns, row: object) -> list[str]:
    """Of a record with a field for each column."""
    return [available(getattr(row, name), factor) for name, (_, factor, _, _) in columns.items()]


def reported_row(table: str, columns: Columns, name: str, **row: float | str) -> list[tuple[str, ...]]:
    """The paper's row of that name; none where it has no such row."""
    cells = [reported(table, theirs, factor, paper=LAYERED_PREFILL, **row) for _, _, theirs, factor in columns.values()]
    return [] if set(cells) == {number_text.UNKNOWN} else [(name.replace(" ", NO_BREAK), *cells)]
