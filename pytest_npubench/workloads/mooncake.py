"""JSON lines with timestamp, input_length and output_length: the form of Mooncake's traces, and of Alibaba's Bailian.

Both have the same keys, and ids of their prompts' blocks (hash_ids), of what stands before each as well: prompts with
the same first ids begin with the same tokens. Mooncake counts milliseconds and ids of 512 tokens, Bailian seconds and
ids of 16. The file itself says which it is: Bailian's chat_id and turn, stamps with a fraction, and how many ids its
prompts have. Where these contradict one another, the user is asked. Ids that are not whole numbers, or not as many as
the prompt has blocks, are left out.

Worked example: {"timestamp": 3000, "input_length": 6758, "output_length": 500, "hash_ids": [0, ...14 ids]} arrives 3 s
after a request at timestamp 0, as 6,758 tokens are 14 blocks of 512. The published Mooncake traces tick about every
3 s, so their burstiness is not real.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pytest_npubench.core.documents import json_value
from pytest_npubench.errors import WorkloadError
from pytest_npubench.serving.request import PromptContent
from pytest_npubench.workloads.reading import (
    Row,
    TimeUnit,
    TraceColumns,
    collect,
    number_from_json,
    opened,
    tokens_from_json,
    unread,
)

_COLUMNS = ("timestamp", "input_length", "output_length")
_WANT = ", ".join(_COLUMNS)
OF_BAILIAN = frozenset(("chat_id", "parent_chat_id", "turn", "type"))
USED = (*_COLUMNS, "hash_ids", *OF_BAILIAN)


class Form(NamedTuple):
    """What a stamp and an id are worth. is_shown: by the file or the user, and not by default."""

    time_unit: TimeUnit
    tokens_per_id: int
    is_shown: bool = True


MOONCAKE, BAILIAN = Form("ms", 512), Form("s", 16)


def read_mooncake(path: Path, time_unit: TimeUnit | None = None, block_tokens: int | None = None) -> TraceColumns:
    """Reads every line of the file. time_unit, block_tokens: what the user says, in the place of what the file shows.
    Raises WorkloadError for the first line that is no such record, and where the file is of neither form."""
    with opened(path) as stream:
        records = [(line, _record(text, path, line)) for line, text in enumerate(stream, start=1) if text.strip()]
    form = _form(records, path, time_unit, block_tokens)
    return collect(_rows(records, path, form), path, time_unit=form.time_unit, notes=_notes(records, form))


def _form(
    records: Sequence[tuple[int, Mapping[str, object]]],
    path: Path,
    time_unit: TimeUnit | None,
    block_tokens: int | None,
) -> Form:
    """What speaks for each of the two forms decides; nothing: Mooncake's."""
    rows = [record for _, record in records]
    sizes = [
        form.tokens_per_id for form in (MOONCAKE, BAILIAN) if all(_has_ids(row, form.tokens_per_id) for row in rows)
    ]
    is_sized = len(sizes) == 1 and any(row.get("hash_ids") for row in rows)
    speaks = {
        BAILIAN: {
            "keys of Bailian's": any(OF_BAILIAN & row.keys() for row in rows),
            "stamps with a fraction": any(_has_fraction(row["timestamp"]) for row in rows),
            "ids of 16 tokens": is_sized and sizes == [BAILIAN.tokens_per_id],
        },
        MOONCAKE: {"ids of 512 tokens": is_sized and sizes == [MOONCAKE.tokens_per_id]},
    }
    said = {form: [words for words, holds in reasons.items() if holds] for form, reasons in speaks.items()}
    if all(said.values()) and not time_unit:
        raise WorkloadError(
            f"{path} has {' and '.join(said[BAILIAN])}, which are in seconds, and {said[MOONCAKE][0]}, which are in "
            "milliseconds; want --time-unit s or ms"
        )
    form = BAILIAN if said[BAILIAN] else MOONCAKE
    size = block_tokens or (sizes[0] if is_sized else form.tokens_per_id)
    return Form(time_unit or form.time_unit, size, is_shown=bool(time_unit or any(said.values())))


def _has_fraction(stamp: object) -> bool:
    return isinstance(stamp, float) and not stamp.is_integer()


def _has_ids(row: Mapping[str, object], size: int) -> bool:
    """Whether a row has as many ids as its prompt has blocks of so many tokens, or none."""
    ids, tokens = row.get("hash_ids"), row["input_length"]
    return not isinstance(ids, list) or not isinstance(tokens, int) or len(ids) == -(-tokens // size)


def _notes(records: Sequence[tuple[int, Mapping[str, object]]], form: Form) -> tuple[str, ...]:
    """What was taken for ids, and the keys that were not read."""
    keys = {key: None for _, row in records for key in row}
    size = form.tokens_per_id
    fit = all(_has_ids(row, size) for _, row in records)
    ids = f"ids of {size} tokens" if fit else f"ids left out where a prompt has not one for {size} tokens"
    unit = () if form.is_shown else ("as Mooncake's, which nothing in the file shows: --time-unit says another",)
    return (*unit, *((ids,) if "hash_ids" in keys else ()), *unread([key for key in keys if key not in USED]))


def _rows(records: Sequence[tuple[int, Mapping[str, object]]], path: Path, form: Form) -> Iterator[Row]:
    for line, record in records:
        input_tokens = tokens_from_json(record["input_length"], path, line, "input_length")
        yield Row(
            input_tokens,
            tokens_from_json(record["output_length"], path, line, "output_length"),
            number_from_json(record["timestamp"], path, line, "timestamp"),
            _content(record.get("hash_ids"), input_tokens, form.tokens_per_id),
        )


def _content(ids: object, input_tokens: int, tokens_per_id: int) -> PromptContent | None:
    if not isinstance(ids, list) or len(ids) != -(-input_tokens // tokens_per_id):
        return None
    return PromptContent(tuple(ids), tokens_per_id) if set(map(type, ids)) <= {int} else None


def _record(text: str, path: Path, line: int) -> dict[str, object]:
    try:
        record: object = json_value(text)
    except ValueError as error:  # ValueError also for integers of thousands of digits
        raise WorkloadError(f"{path}, line {line}: no valid JSON ({error}); want one object a line") from error
    if not isinstance(record, dict):
        raise WorkloadError(f"{path}, line {line}: a JSON {type(record).__name__}; want an object with {_WANT}")
    for column in _COLUMNS:
        if column not in record:
            raise WorkloadError(f"{path}, line {line}: no {column!r}; want an object with {_WANT}")
    return record
