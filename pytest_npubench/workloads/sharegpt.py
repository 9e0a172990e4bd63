"""ShareGPT conversations: one request a conversation, its first human message that a model answers at once.

The file is one JSON list of {"conversations": [{"from": "human", "value": ...}, {"from": "gpt", "value": ...}, ...]}.
It holds text, so tokens must be counted: give `count_tokens`, or take the stated approximation of 4 characters a token,
rounded up. Worked example: a prompt "hello there" of 11 characters counts ceil(11/4) = 3 tokens. A conversation without
such a pair of messages is left out and counted. The whole file is held in memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from pytest_npubench.errors import WorkloadError
from pytest_npubench.workloads.reading import MAX_TOKENS, Row, TraceColumns, collect, opened, unread

CountTokens = Callable[[str], int]

CHARACTERS_PER_TOKEN = 4


def approximate_tokens(text: str) -> int:
    """ceil(characters / 4): near what byte-pair tokenizers give for English, far off for other scripts and code."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def read_sharegpt(path: Path, count_tokens: CountTokens) -> TraceColumns:
    """Reads every conversation. Raises WorkloadError for corrupt JSON and the first entry of another form."""
    entries = _conversations(path)
    rows = list(_rows(entries, path, count_tokens))
    return collect(rows, path, notes=unread(_unread(entries)))


def _conversations(path: Path) -> list[object]:
    with opened(path) as stream:
        try:
            entries = json.load(stream)
        except (ValueError, RecursionError) as error:
            if isinstance(error, UnicodeDecodeError):
                raise
            raise WorkloadError(f"{path}: no valid JSON ({error}); want a list of conversations") from error
    if not isinstance(entries, list):
        raise WorkloadError(f"{path} holds a JSON {type(entries).__name__}; want a list of conversations")
    return entries


def _unread(entries: list[Any]) -> Iterator[str]:
    """Keys of conversations and messages that nothing is made of, and messages of others than a human and a model."""
    yield from dict.fromkeys(key for entry in entries for key in entry if key not in ("id", "conversations"))
    turns = [turn for entry in entries for turn in entry["conversations"]]
    yield from dict.fromkeys(f"{key} of messages" for turn in turns for key in turn if key not in ("from", "value"))
    others = {turn["from"] for turn in turns} - {"human", "gpt"}
    yield from (f"messages of {other}" for other in sorted(others))


def _rows(entries: list[object], path: Path, count_tokens: CountTokens) -> Iterator[Row]:
    for index, entry in enumerate(entries):
        turns = _turns(entry, path, index)
        pair = next((pair for pair in pairwise(turns) if pair[0][0] == "human" and pair[1][0] == "gpt"), None)
        if pair is None:
            yield Row(0, 0, None)  # nothing to run; counted with the rows of length 0
        else:
            prompt, answer = (_count(text, count_tokens, path, index) for _, text in pair)
            yield Row(prompt, answer, None)


def _turns(entry: object, path: Path, index: int) -> list[tuple[str, str]]:
    """Returns the entry's messages as (who, text)."""
    turns = entry.get("conversations") if isinstance(entry, dict) else None
    if not isinstance(turns, list):
        raise WorkloadError(f"{path}, entry {index}: no list under 'conversations'")
    for number, turn in enumerate(turns):
        if not isinstance(turn, dict) or not all(isinstance(turn.get(key), str) for key in ("from", "value")):
            raise WorkloadError(f"{path}, entry {index}, message {number}: want the texts 'from' and 'value'")
    return [(turn["from"], turn["value"]) for turn in turns]


def _count(text: str, count_tokens: CountTokens, path: Path, index: int) -> int:
    num_tokens = count_tokens(text)
    if isinstance(num_tokens, bool) or not isinstance(num_tokens, int) or not 0 <= num_tokens <= MAX_TOKENS:
        raise WorkloadError(f"{path}, entry {index}: count_tokens returned {num_tokens!r}; want a whole number >= 0")
    return num_tokens
