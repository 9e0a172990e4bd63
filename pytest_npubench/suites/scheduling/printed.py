"""A table of the paper as plain data, for the detail of the case that measures the same."""

from __future__ import annotations

from pytest_npubench.core.papers import published


def printed(number: str) -> dict[str, object]:
    """Columns, their units and rows as the paper prints them."""
    table = published("layered_prefill").table(number)
    return {
        "source": f"Layered Prefill, Table {number}",
        "columns": list(table.columns),
        "units": list(table.units),
        "rows": [list(row) for row in table.rows],
    }
