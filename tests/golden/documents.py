"""What must not change by moving code: the documents that `--json` prints of one recorded run, every key and type.

Values are masked by their types, so that neither the machine nor the day matters, and a list says what its members are.
After a change that is meant, `python -m golden.documents` in tests/ writes the record anew.
"""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cli.option_fuzz import confined, fill
from reports.journals import make_plan, measure, write_run

from pytest_npubench.cli.main import main

RECORD = Path(__file__).with_name("documents.json")
CASE = "buckets/profile/cpu-tiny-llama-b4-bucket128"
CALLS = (
    "hardware cpu",
    "workloads lens-sharegpt",
    "profile --journal journal.jsonl --campaign cpu-tiny-llama-b4 -o made.json",
    "predict profile.json --input-tokens 100 --output-tokens 60",
    "predict profile.json --workload lens-sharegpt --num-requests 3",
    "simulate --hardware nvidia-h100 --model small-moe --policy layered --num-requests 2 --workload layered-sharegpt "
    "--rate 20",
    "search batch profile.json --workload lens-sharegpt --num-requests 8",
    "search buckets profile.json --workload lens-sharegpt --num-requests 8",
    "show journal.jsonl",
    "baseline list",
    f"baseline show {CASE}",
    "journal check journal.jsonl",
    "history list --history history.db",
    f"history show {CASE} --history history.db",
    "history changes --history history.db",
    "compare journal.jsonl other.jsonl",
)
"""Commands that print a document of recorded runs. What measures, accepts or calls a server has tests of its own."""


def documents(folder: Path) -> dict[str, list[str]]:
    """By call: the exit status, and the leaves of the document that it prints, in an empty folder."""
    with confined(folder), contextlib.redirect_stdout(io.StringIO()):
        fill(folder)
        write_run(folder / "other.jsonl", measure(make_plan(4)))
        return {call: _answer(call) for call in CALLS}


def _answer(call: str) -> list[str]:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        status = main([*call.split(), "--json"])
    return [f"exit status {status}", *sorted(set(_leaves(json.loads(printed.getvalue()))))]


def _leaves(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}".lstrip("."))
    elif isinstance(value, list) and value:
        for inner in value:
            yield from _leaves(inner, f"{path}[]")
    else:
        yield f"{path}: {'number' if type(value) in (int, float) else type(value).__name__}"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        RECORD.write_text(json.dumps(documents(Path(temporary)), indent=0) + "\n", encoding="utf-8")
