"""A table of the paper, for the detail of the case that measures the same."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_npubench.core.papers import Cell, published


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedTable:
    """Columns, their units and rows as the paper prints them."""

    source: str
    columns: tuple[str, ...]
    units: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


def printed(number: str) -> PrintedTable:
    """That table of Layered Prefill."""
    table = published("layered_prefill").table(number)
    source = f"Layered Prefill, Table {number}"
    return PrintedTable(source=source, columns=table.columns, units=table.units, rows=table.rows)
