"""Trace files with a header line: which columns each format has and how its clock is written.

    azure           TIMESTAMP,ContextTokens,GeneratedTokens       TIMESTAMP 2023-11-16 18:15:46.6805900
    burstgpt        Timestamp,...,Request tokens,Response tokens  Timestamp in seconds; 0 response tokens: a failure
    lengths         input_tokens,output_tokens                    arrivals in the column and unit of ARRIVALS
    prefill-decode  num_prefill_tokens,num_decode_tokens          likewise (Vidur: arrived_at)
    llmservingsim   arrival_time_ns,input_toks,output_toks        arrival_time_ns in nanoseconds

Columns may stand in any order and others may stand between them, which are named as not read. A column that seems to
hold times in no known unit is refused, unless the user says the unit. Worked example: the azure rows at
18:15:46.6805900 and 18:15:50.9951690 arrive at 0.0 s and 4.314579 s.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TextIO

from pytest_npubench.core.documents import csv_rows
from pytest_npubench.errors import WorkloadError
from pytest_npubench.workloads.reading import (
    Row,
    TimeUnit,
    TraceColumns,
    collect,
    number_from_text,
    opened,
    refuse,
    tokens_from_text,
    unread,
)

_REFERENCE = datetime(2024, 1, 1, tzinfo=timezone.utc)  # only differences count; a near instant keeps the digits
_INSTANT = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(\.\d{1,9})?(Z|[+-]\d\d:\d\d)?", re.ASCII)
_WANT_INSTANT = "want a date and time like 2023-11-16 18:15:46.6805900"

Clock = Callable[[str, Path, int, str], float]


def instant_from_text(text: str, path: Path, line: int, column: str) -> float:
    """Seconds since 2024-01-01, UTC unless an offset is written. datetime alone reads 6 digits of a second, not 7."""
    match = _INSTANT.fullmatch(text.strip())
    if match is None:
        raise refuse(path, line, column, text, _WANT_INSTANT)
    day, clock, fraction, offset = match.groups()
    try:
        instant = datetime.fromisoformat(f"{day} {clock}{'+00:00' if offset in (None, 'Z') else offset}")
    except ValueError as error:
        raise refuse(path, line, column, text, _WANT_INSTANT) from error
    return (instant - _REFERENCE).total_seconds() + float(fraction or 0)


ARRIVALS: dict[str, TimeUnit] = {
    "arrival_s": "s",
    "arrived_at": "s",
    "arrival_time_s": "s",
    "arrival_ms": "ms",
    "arrival_time_ms": "ms",
    "arrival_us": "us",
    "arrival_time_us": "us",
    "arrival_ns": "ns",
    "arrival_time_ns": "ns",
}
"""Columns of arrivals, and their units."""
SEEMS_TIME = re.compile("arriv|time|stamp|clock|_at$|seconds", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvFormat:
    """The columns of one kind of file. arrival_column: None where it is one of ARRIVALS, if the file has one."""

    name: str
    input_column: str
    output_column: str
    arrival_column: str | None = None
    time_unit: TimeUnit = "s"
    clock: Clock = number_from_text

    @property
    def required(self) -> tuple[str, ...]:
        lengths = (self.input_column, self.output_column)
        return (self.arrival_column, *lengths) if self.arrival_column else lengths

    def read(self, path: Path, time_unit: TimeUnit | None = None) -> TraceColumns:
        """Reads every row of the file. time_unit: of the arrivals, where the user says it. Raises WorkloadError for a
        missing column, for the first wrong value, and for times in no unit that is known."""
        with opened(path) as stream:
            lines = _lines(stream, path)
            header = _header(lines, path)
            self._check_header(header, path)
            arrival = self.arrival_column or _arrival_of(header, path, time_unit)
            unit = time_unit or (ARRIVALS.get(arrival, "s") if arrival and not self.arrival_column else self.time_unit)
            read = {self.input_column, self.output_column, arrival}
            notes = unread([column for column in header if column and column not in read])
            return collect(self._rows(lines, header, arrival, path), path, time_unit=unit, notes=notes)

    def _rows(
        self, lines: Iterator[tuple[int, list[str]]], header: list[str], arrival_column: str | None, path: Path
    ) -> Iterator[Row]:
        inputs, outputs = header.index(self.input_column), header.index(self.output_column)
        arrival = None if arrival_column is None else header.index(arrival_column)
        for line, cells in lines:
            if not cells:
                continue  # a blank line
            if len(cells) != len(header):
                raise WorkloadError(f"{path}, line {line}: {len(cells)} cells; want {len(header)}, as in the header")
            yield Row(
                tokens_from_text(cells[inputs], path, line, self.input_column),
                tokens_from_text(cells[outputs], path, line, self.output_column),
                None if arrival is None else self.clock(cells[arrival], path, line, header[arrival]),
            )

    def _check_header(self, header: list[str], path: Path) -> None:
        for column in self.required:
            if header.count(column) != 1:
                fault = "is missing" if column not in header else "stands there twice"
                raise WorkloadError(
                    f"{path}, line 1: column {column!r} {fault}; format {self.name!r} wants "
                    f"{', '.join(self.required)}, the file has {', '.join(header)}"
                )


AZURE = CsvFormat(
    name="azure",
    input_column="ContextTokens",
    output_column="GeneratedTokens",
    arrival_column="TIMESTAMP",
    clock=instant_from_text,
)
BURSTGPT = CsvFormat(
    name="burstgpt", input_column="Request tokens", output_column="Response tokens", arrival_column="Timestamp"
)
LENGTHS = CsvFormat(name="lengths", input_column="input_tokens", output_column="output_tokens")
PREFILL_DECODE = CsvFormat(name="prefill-decode", input_column="num_prefill_tokens", output_column="num_decode_tokens")
LLMSERVINGSIM = CsvFormat(
    name="llmservingsim",
    input_column="input_toks",
    output_column="output_toks",
    arrival_column="arrival_time_ns",
    time_unit="ns",
)
CSV_FORMATS = (AZURE, BURSTGPT, LENGTHS, PREFILL_DECODE, LLMSERVINGSIM)


def _arrival_of(header: list[str], path: Path, time_unit: TimeUnit | None) -> str | None:
    """Returns the column of arrivals in a file of lengths; None: it has none. Raises WorkloadError for a unit that is
    not known and for several columns."""
    columns = [column for column in header if column in ARRIVALS]
    if not columns:
        columns = [column for column in header if SEEMS_TIME.search(column)]
        if columns and time_unit is None:
            raise WorkloadError(
                f"{path}, line 1: column {columns[0]!r} seems to hold times, in a unit that is not known; want "
                f"--time-unit, or one of {', '.join(ARRIVALS)}"
            )
    if len(columns) > 1:
        raise WorkloadError(f"{path}, line 1: columns {', '.join(columns)} all hold arrivals; want one of them")
    return columns[0] if columns else None


def _lines(stream: TextIO, path: Path) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of each line."""
    try:
        yield from csv_rows(stream)
    except UnicodeDecodeError:
        raise
    except ValueError as error:
        raise WorkloadError(f"{path}, {error}") from error


def _header(lines: Iterator[tuple[int, list[str]]], path: Path) -> list[str]:
    """Returns the cells of the first line, without blanks around them. Raises WorkloadError for an empty file."""
    _, cells = next(lines, (0, []))
    header = [cell.strip() for cell in cells]
    if not any(header):
        raise WorkloadError(f"{path} is empty or starts with a blank line; want a header line with the column names")
    return header


def csv_format_of(path: Path) -> CsvFormat:
    """Returns the format whose columns the header has. Raises WorkloadError naming every format's columns when none
    fits."""
    with opened(path) as stream:
        header = _header(_lines(stream, path), path)
    for csv_format in CSV_FORMATS:
        if set(csv_format.required) <= set(header):
            return csv_format
    formats = "; ".join(f"{each.name}: {', '.join(each.required)}" for each in CSV_FORMATS)
    shown = ", ".join(header)
    shown = shown if len(shown) <= 200 else shown[:200] + "..."
    raise WorkloadError(f"{path}, line 1: no known format has the columns {shown}; want those of one of: {formats}")
