"""Several tables of a paper as one, a row a table: where, what the paper says of it, and its values as printed.

Worked example: of HeteroInfer's figure 15 "llama-8b 14.01 tokens/s; llama-3b 29.9 tokens/s; internlm-1.8b 51.12
tokens/s".
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_npubench.core.papers import Cell, PublishedTable
from pytest_npubench.reports.build import NO_BREAK
from pytest_npubench.reports.page import Table
from pytest_npubench.reports.reported import TITLES, conditions, read_paper

UNIT_COLUMN = "of"  # of a table whose rows differ in their units


def figures_table(paper: str, places: Sequence[tuple[str, str]]) -> Table:
    """places are (table of the paper, its column of values)."""
    tables = [(read_paper(paper).table(number), column) for number, column in places]
    return Table(
        caption=f"Reported by {TITLES[paper]}",
        note="As printed there: not measured here, and compared with nothing.",
        header=("place and hardware", "what the paper says of it", "reported"),
        rows=tuple(
            (
                conditions(found.number, paper=paper),
                found.caption,
                "; ".join(f"{_what(found, row)} {_value(found, row, column)}" for row in found.rows),
            )
            for found, column in tables
        ),
    )


def _what(found: PublishedTable, row: Sequence[Cell]) -> str:
    """The texts of a row, which say what its number is of."""
    named = zip(found.columns, row, strict=True)
    return ", ".join(cell for name, cell in named if isinstance(cell, str) and name != UNIT_COLUMN)


def _value(found: PublishedTable, row: Sequence[Cell], column: str) -> str:
    cells = dict(zip(found.columns, row, strict=True))
    value, unit = cells[column], found.unit(column) or cells.get(UNIT_COLUMN, "")
    shown = value if isinstance(value, str) else f"{value:,}"
    return f"{shown}{NO_BREAK}{unit}" if unit else shown
