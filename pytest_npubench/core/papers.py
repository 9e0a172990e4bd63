"""Figures that papers print, as data: shown beside measured or simulated ones, never compared as if measured.

One TOML file a paper, in baselines/published. Worked example:

    >>> published("layered_prefill").table("6").value("ttft_mean", policy="layered")
    1.24

with its unit in `table("6").unit("ttft_mean")`: "s".
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_npubench.core.regular_file import SMALL_BYTES, read_text
from pytest_npubench.errors import ConfigError

Cell = float | str
CONDITIONS: dict[str, type | tuple[type, ...]] = {
    "model": str,
    "hardware": str,
    "num_devices": int,
    "workload": str,
    "rate_per_s": (int, float),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTable:
    """One table of a paper. rows are [num_rows][num_columns]; the conditions are None where they differ by row or are
    not printed."""

    number: str
    section: str
    caption: str
    columns: tuple[str, ...]
    units: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    model: str | None = None
    hardware: str | None = None
    num_devices: int | None = None
    workload: str | None = None
    rate_per_s: float | None = None

    def column(self, name: str) -> tuple[Cell, ...]:
        """Every row's value. Raises ConfigError with the columns that are there."""
        place = self._place(name)
        return tuple(row[place] for row in self.rows)

    def unit(self, name: str) -> str:
        return self.units[self._place(name)]

    def value(self, name: str, **row: Cell) -> Cell:
        """The one value of column `name` where every other column named has the value given. Raises ConfigError where
        no row or more than one is like that."""
        wanted = {self._place(column): value for column, value in row.items()}
        found = [cells for cells in self.rows if all(cells[place] == value for place, value in wanted.items())]
        if len(found) != 1:
            raise ConfigError(f"table {self.number}: {len(found)} rows have {row}; want exactly one")
        return found[0][self._place(name)]

    def _place(self, name: str) -> int:
        if name not in self.columns:
            raise ConfigError(f"table {self.number} has no column {name!r}; columns: {', '.join(self.columns)}")
        return self.columns.index(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedPaper:
    """A paper's tables by number ("6", "5.9 offline"), with notes on what to beware of."""

    title: str
    authors: str
    notes: tuple[str, ...]
    tables: tuple[PublishedTable, ...]

    def table(self, number: str) -> PublishedTable:
        """Raises ConfigError with the numbers that are there."""
        for table in self.tables:
            if table.number == number:
                return table
        raise ConfigError(f"no table {number!r}; tables: {', '.join(table.number for table in self.tables)}")


def published(name: str) -> PublishedPaper:
    """The figures of one shipped paper. Raises ConfigError for an unknown name, listing those that are there."""
    papers = {path.stem: path for path in sorted(default_directory().glob("*.toml"))}
    if name not in papers:
        raise ConfigError(f"no published figures {name!r}; shipped: {', '.join(papers) or 'none'}")
    return load_published(papers[name])


def load_published(path: Path) -> PublishedPaper:
    """Read one file. Raises ConfigError naming the file, the table and what is wanted."""
    try:
        document = _parse(read_text(path, SMALL_BYTES))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError are both ValueErrors
        raise ConfigError(f"{path}: not a TOML file in UTF-8: {error}") from error
    tables = document.pop("tables", None)
    if not isinstance(tables, dict) or not tables:
        raise ConfigError(f"{path}: want one or more [tables.NUMBER]")
    _check_keys(path, "the file", document, needed=("title", "authors"), allowed=("notes",))
    return PublishedPaper(
        title=_text(path, "title", document["title"]),
        authors=_text(path, "authors", document["authors"]),
        notes=_texts(path, "notes", document.get("notes", [])),
        tables=tuple(_table(path, number, entries) for number, entries in tables.items()),
    )


def default_directory() -> Path:
    """Where the figures that come with the package lie, installed from a wheel or from a checkout."""
    package = Path(__file__).resolve().parents[1]
    packaged = package / "published_files"
    return packaged if packaged.is_dir() else package.parent / "baselines" / "published"


def _parse(text: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        # mypy checks this branch also where only Python 3.11 or later, and so no tomli, is installed
        import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]
    document: dict[str, Any] = tomllib.loads(text)
    return document


def _table(path: Path, number: str, entries: object) -> PublishedTable:
    place = f"tables.{number}"
    if not isinstance(entries, dict):
        raise ConfigError(f"{path}: {place}: want a table, not {entries!r}")
    needed = ("section", "caption", "columns", "units", "rows")
    _check_keys(path, place, entries, needed=needed, allowed=tuple(CONDITIONS))
    for key, kind in CONDITIONS.items():
        if key in entries and (isinstance(entries[key], bool) or not isinstance(entries[key], kind)):
            raise ConfigError(f"{path}: {place}.{key}: {entries[key]!r} is of the wrong kind")
    columns = _texts(path, f"{place}.columns", entries["columns"])
    units = _texts(path, f"{place}.units", entries["units"])
    if len(units) != len(columns) or len(set(columns)) < len(columns):
        raise ConfigError(
            f"{path}: {place}: {len(columns)} columns, {len(units)} units; want a unit for each, no name twice"
        )
    return PublishedTable(
        number=number,
        section=_text(path, f"{place}.section", entries["section"]),
        caption=_text(path, f"{place}.caption", entries["caption"]),
        columns=columns,
        units=units,
        rows=_rows(path, place, entries["rows"], len(columns)),
        **{key: entries[key] for key in CONDITIONS if key in entries},
    )


def _rows(path: Path, place: str, rows: object, num_columns: int) -> tuple[tuple[Cell, ...], ...]:
    """The rows of a table. Each has one cell a column, and a column holds either texts or numbers."""
    if not isinstance(rows, list) or not rows:
        raise ConfigError(f"{path}: {place}.rows: want one or more rows")
    for index, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != num_columns:
            raise ConfigError(f"{path}: {place}.rows[{index}]: {row!r}; want {num_columns} values, one a column")
        for cell, first in zip(row, rows[0], strict=True):
            good = isinstance(cell, (int, float, str)) and not isinstance(cell, bool)
            if not good or isinstance(cell, str) != isinstance(first, str):
                raise ConfigError(f"{path}: {place}.rows[{index}]: {cell!r}; want texts or numbers, one kind a column")
    return tuple(map(tuple, rows))


def _check_keys(
    path: Path, place: str, entries: dict[str, Any], *, needed: Sequence[str], allowed: Sequence[str]
) -> None:
    for key in needed:
        if key not in entries:
            raise ConfigError(f"{path}: {place}: {key} is missing; want {', '.join(needed)}")
    for key in entries:
        if key not in (*needed, *allowed):
            raise ConfigError(f"{path}: {place}: unknown key {key!r}; allowed: {', '.join((*needed, *allowed))}")


def _text(path: Path, place: str, value: object) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{path}: {place}: {value!r}; want a text")
    return value


def _texts(path: Path, place: str, values: object) -> tuple[str, ...]:
    if not isinstance(values, list):
        raise ConfigError(f"{path}: {place}: {values!r}; want a list of texts")
    return tuple(_text(path, place, value) for value in values)
