"""Mooncake traces: JSON lines with timestamp (ms), input_length and output_length, and hash_ids where there are any.

Other keys are not read. hash_ids are of 512 tokens each, and of what stands before them: prompts with the same first
ids begin with the same tokens. Ids that are not whole numbers, or not as many as the prompt has, are left out.

Worked example: {"timestamp": 3000, "input_length": 6758, "output_length": 500, "hash_ids": [0]} arrives 3 s after a
request at timestamp 0. The published Mooncake traces tick about every 3 s, so their burstiness is not real.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from pytest_npubench.errors import WorkloadError
from pytest_npubench.serving.request import PromptContent
from pytest_npubench.workloads.reading import Row, TraceColumns, collect, number_from_json, opened, tokens_from_json

_COLUMNS = ("timestamp", "input_length", "output_length")
TOKENS_PER_ID = 512
_WANT = ", ".join(_COLUMNS)


def read_mooncake(path: Path) -> TraceColumns:
    """Reads every line of the file. Raises WorkloadError for the first line that is no such record."""
    with opened(path) as stream:
        return collect(_rows(stream, path), path)


def _rows(stream: TextIO, path: Path) -> Iterator[Row]:
    for line, text in enumerate(stream, start=1):
        if not text.strip():
            continue
        record = _record(text, path, line)
        input_tokens = tokens_from_json(record["input_length"], path, line, "input_length")
        yield Row(
            input_tokens,
            tokens_from_json(record["output_length"], path, line, "output_length"),
            number_from_json(record["timestamp"], path, line, "timestamp") / 1000,
            _content(record.get("hash_ids"), input_tokens),
        )


def _content(ids: object, input_tokens: int) -> PromptContent | None:
    if not isinstance(ids, list) or len(ids) != -(-input_tokens // TOKENS_PER_ID):
        return None
    return PromptContent(tuple(ids), TOKENS_PER_ID) if set(map(type, ids)) <= {int} else None


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
