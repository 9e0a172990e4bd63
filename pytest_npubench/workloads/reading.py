"""What every trace reader shares: opening a user's file, checking one value, collecting rows into columns.

A row is (input_tokens, output_tokens, arrival on the file's own clock or None), and what the prompt holds
where the file has ids of it. A row without a prompt or
without an answer cannot be run, so it is left out and counted; in logs such rows are failed requests. Arrivals become
seconds from the earliest row; a file out of time order is sorted by arrival, rows of one instant in file order.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, TextIO

from pytest_npubench.core import regular_file
from pytest_npubench.errors import WorkloadError
from pytest_npubench.serving.request import PromptContent

MAX_TOKENS = 2**31 - 1
MAX_BYTES = 2 * 1024 * 1024 * 1024  # ShareGPT, the largest trace that people replay, has 0.7 GB
_WANT_TOKENS = f"want a whole number of tokens from 0 to {MAX_TOKENS}"
_WANT_TIME = "want a finite number"


TimeUnit = Literal["s", "ms", "us", "ns"]
UNITS: dict[TimeUnit, tuple[float, str]] = {
    "s": (1.0, "seconds"),
    "ms": (1e-3, "milliseconds"),
    "us": (1e-6, "microseconds"),
    "ns": (1e-9, "nanoseconds"),
}
"""What one is in seconds, and its name."""


class Row(NamedTuple):
    """arrival: in the unit that `collect` is given."""

    input_tokens: int
    output_tokens: int
    arrival: float | None
    content: PromptContent | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceColumns:
    """A trace file's usable rows as columns; arrival_s is None where the file holds no times, content where one of them
    has no ids."""

    input_tokens: tuple[int, ...]
    output_tokens: tuple[int, ...]
    arrival_s: tuple[float, ...] | None
    num_unusable: int
    content: tuple[PromptContent, ...] | None = None
    notes: tuple[str, ...] = ()
    """What was taken for what, in words."""


def unread(keys: Iterable[str]) -> tuple[str, ...]:
    """In words, where there are any."""
    names = ", ".join(keys)
    return (f"not read: {names}",) if names else ()


@contextmanager
def opened(path: Path) -> Iterator[TextIO]:
    """Gives the file as UTF-8 text, unpacked (a byte order mark is fine). Raises WorkloadError for what is no text
    file."""
    try:
        with (
            regular_file.unpacked(path, MAX_BYTES) as file,
            io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as stream,
        ):
            yield stream
    except UnicodeDecodeError as error:
        raise WorkloadError(f"{path} is not UTF-8 text ({error.reason}); want CSV, JSON lines or JSON") from error
    except FileNotFoundError as error:
        raise WorkloadError(f"{path} does not exist; want a trace file") from error
    except OSError as error:
        raise WorkloadError(f"{path} cannot be read: {error.strerror}") from error


def refuse(path: Path, line: int, column: str, value: object, want: str) -> WorkloadError:
    """Returns the error for one value: file, line, column, value, what is allowed."""
    shown = repr(value)
    shown = shown if len(shown) <= 80 else shown[:80] + "..."
    return WorkloadError(f"{path}, line {line}, column {column!r}: {shown}; {want}")


def tokens_from_text(text: str, path: Path, line: int, column: str) -> int:
    """Returns a token count written in decimal digits. Raises WorkloadError naming the place."""
    digits = text.strip()
    if digits.isascii() and digits.isdigit() and len(digits) <= 10 and int(digits) <= MAX_TOKENS:
        return int(digits)
    raise refuse(path, line, column, text, _WANT_TOKENS)


def tokens_from_json(value: object, path: Path, line: int, column: str) -> int:
    """Returns a token count that JSON holds as an integer. Raises WorkloadError naming the place."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TOKENS:
        return value
    raise refuse(path, line, column, value, _WANT_TOKENS)


def number_from_text(text: str, path: Path, line: int, column: str) -> float:
    """Returns a finite number, as Python writes floats. Raises WorkloadError naming the place."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or "_" in text:
        raise refuse(path, line, column, text, _WANT_TIME)
    return value


def number_from_json(value: object, path: Path, line: int, column: str) -> float:
    """Returns a finite number that JSON holds as such. Raises WorkloadError naming the place."""
    usable = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= 1e15
    if not usable:  # a NaN compares false as well
        raise refuse(path, line, column, value, f"{_WANT_TIME} up to 1e15")
    assert isinstance(value, (int, float))
    return float(value)


LATEST_S = 1e11
"""Of a clock that counts seconds from 1970: in the year 5138. Milliseconds of today are more."""


def collect(rows: Iterable[Row], path: Path, *, time_unit: TimeUnit = "s", notes: Sequence[str] = ()) -> TraceColumns:
    """All rows as columns, arrivals in seconds. Raises WorkloadError when no row is usable."""
    usable: list[Row] = []
    num_rows = 0
    for row in rows:
        num_rows += 1
        if row.input_tokens and row.output_tokens:
            usable.append(row)
    if not num_rows:
        raise WorkloadError(f"{path} holds no requests; want at least one row")
    if not usable:
        raise WorkloadError(f"{path}: none of {num_rows} requests has both a prompt and an answer")
    if time_unit == "s" and any(row.arrival is not None and row.arrival > LATEST_S for row in usable):
        raise WorkloadError(f"{path}: arrivals above {LATEST_S:.0e} are no seconds; want --time-unit ms, us or ns")
    return _columns(usable, num_rows - len(usable), time_unit, notes)


def _columns(usable: list[Row], num_unusable: int, time_unit: TimeUnit, notes: Sequence[str]) -> TraceColumns:
    input_tokens, output_tokens, arrivals, contents = zip(*_by_arrival(usable), strict=True)
    first, (unit_s, name) = arrivals[0], UNITS[time_unit]
    span_s = 0.0 if first is None else (arrivals[-1] - first) * unit_s
    rate = f", {(len(usable) - 1) / span_s:.3g} requests/s" if span_s else ""
    taken = () if first is None else (f"over {span_s:.4g} s{rate}, stamps in {name}",)
    return TraceColumns(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        arrival_s=None if first is None else tuple((arrival - first) * unit_s for arrival in arrivals),
        num_unusable=num_unusable,
        content=None if None in contents else contents,
        notes=(*taken, *notes),
    )


def _by_arrival(rows: list[Row]) -> list[Row]:
    """Sorted stably by arrival; as they are where the file holds no times."""
    if rows[0].arrival is None:
        return rows
    return sorted(rows, key=lambda row: row.arrival or 0.0)
