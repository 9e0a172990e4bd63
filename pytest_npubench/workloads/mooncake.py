"""Mooncake traces: JSON lines with timestamp (ms), input_length and output_length; other keys are not read.

Worked example: {"timestamp": 3000, "input_length": 6758, "output_length": 500, "hash_ids": [0]} arrives 3 s after a
request at timestamp 0. The published Mooncake traces tick about every 3 s, so their burstiness is not real.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from pytest_npubench.errors import WorkloadError
from pytest_npubench.workloads.reading import Row, TraceColumns, collect, number_from_json, opened, tokens_from_json

_COLUMNS = ("timestamp", "input_length", "output_length")
_WANT = ", ".join(_COLUMNS)


def read_mooncake(path: Path) -> TraceColumns:
    """Every line of the file. Raises WorkloadError for the first line that is no such record."""
    with opened(path) as stream:
        return collect(_rows(stream, path), path)


def _rows(stream: TextIO, path: Path) -> Iterator[Row]:
    for line, text in enumerate(stream, start=1):
        if not text.strip():
            continue
        record = _record(text, path, line)
        yield (
            tokens_from_json(record["input_length"], path, line, "input_length"),
            tokens_from_json(record["output_length"], path, line, "output_length"),
            number_from_json(record["timestamp"], path, line, "timestamp") / 1000,
        )


def _record(text: str, path: Path, line: int) -> dict[str, object]:
    try:
        record: object = json.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError also for integers of thousands of digits
        raise WorkloadError(f"{path}, line {line}: no valid JSON ({error}); want one object a line") from error
    if not isinstance(record, dict):
        raise WorkloadError(f"{path}, line {line}: a JSON {type(record).__name__}; want an object with {_WANT}")
    for column in _COLUMNS:
        if column not in record:
            raise WorkloadError(f"{path}, line {line}: no {column!r}; want an object with {_WANT}")
    return record
