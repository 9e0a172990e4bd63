"""Figures that papers print, as data, for benchmarks and tests to stand beside measured or simulated ones.

One TOML file a paper, in baselines/published. Worked example:

    >>> published("layered_prefill").table("6").value("ttft_mean", policy="layered")
    1.24

with its unit in `table("6").unit("ttft_mean")`: "s".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from pytest_npubench.core.record_reader import TABLE_NAME, WrongEntryError
from pytest_npubench.core.toml_table import TomlTable
from pytest_npubench.errors import ConfigError

Cell = int | float | str
DIRECTORY = Path(__file__).resolve().parents[1] / "baselines" / "published"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTable:
    """One table of a paper. rows are [num_rows][num_columns]; the conditions are None where they differ by row or are
    not printed."""

    number: str = field(metadata=TABLE_NAME)
    section: str
    caption: str
    columns: tuple[str, ...]
    units: tuple[str, ...]
    rows: Annotated[tuple[tuple[Cell, ...], ...], Meta(min_length=1, description="rows of texts and numbers")]
    model: str | None = None
    hardware: str | None = None
    num_devices: int | None = None
    workload: str | None = None
    rate_per_s: int | float | None = None

    def __post_init__(self) -> None:
        """Raises WrongEntryError where a row has not one cell a column, or a column not one kind of cell."""
        if len(self.units) != len(self.columns) or len(set(self.columns)) < len(self.columns):
            problem = f"{len(self.columns)} columns, {len(self.units)} units; want a unit for each, no name twice"
            raise WrongEntryError("columns", problem)
        for index, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                problem = f"{list(row)!r}; want {len(self.columns)} values, one a column"
                raise WrongEntryError(f"rows[{index}]", problem)
            for cell, first in zip(row, self.rows[0], strict=True):
                if isinstance(cell, str) != isinstance(first, str):
                    raise WrongEntryError(f"rows[{index}]", f"{cell!r}; want texts or numbers, one kind a column")

    def column(self, name: str) -> tuple[Cell, ...]:
        """The column holds every row's value. Raises ConfigError with the columns that are there."""
        index = self._column_index(name)
        return tuple(row[index] for row in self.rows)

    def unit(self, name: str) -> str:
        return self.units[self._column_index(name)]

    def value(self, name: str, **row: Cell) -> Cell:
        """The one value of column `name` where every other column named has the value given. Raises ConfigError where
        no row or more than one is like that."""
        wanted = {self._column_index(column): value for column, value in row.items()}
        matching_rows = [cells for cells in self.rows if all(cells[index] == value for index, value in wanted.items())]
        if len(matching_rows) != 1:
            raise ConfigError(f"table {self.number}: {len(matching_rows)} rows have {row}; want exactly one")
        return matching_rows[0][self._column_index(name)]

    def _column_index(self, name: str) -> int:
        if name not in self.columns:
            raise ConfigError(f"table {self.number} has no column {name!r}; columns: {', '.join(self.columns)}")
        return self.columns.index(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedPaper:
    """A paper's tables by number ("6", "5.9 offline"), with notes on what to beware of."""

    title: str
    authors: str
    notes: tuple[str, ...] = ()
    tables: Annotated[tuple[PublishedTable, ...], Meta(min_length=1, description="one or more [tables.NUMBER]")]

    def table(self, number: str) -> PublishedTable:
        """Raises ConfigError with the numbers that are there."""
        for table in self.tables:
            if table.number == number:
                return table
        raise ConfigError(f"no table {number!r}; tables: {', '.join(table.number for table in self.tables)}")


def published(name: str) -> PublishedPaper:
    """The figures of one paper. Raises ConfigError for an unknown name, listing those that are there."""
    papers = {path.stem: path for path in sorted(DIRECTORY.glob("*.toml"))}
    if name not in papers:
        raise ConfigError(f"no published figures {name!r}; there are: {', '.join(papers) or 'none'}")
    return load_published(papers[name])


def load_published(path: Path) -> PublishedPaper:
    """Read one file. Raises ConfigError naming the file, the table and what is wanted."""
    return TomlTable.of(path, ConfigError).read_itself(PublishedPaper)
