"""Files of a run: its requests, in the form in which runs are read, and its iterations."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from pytest_npubench.core.regular_file import replacing
from pytest_npubench.errors import StoreError

if TYPE_CHECKING:
    from pytest_npubench.serving.log import IterationLog
    from pytest_npubench.serving.metrics import RequestRecord


def requests_text(records: Sequence[RequestRecord]) -> str:
    """Writes one line a request, as `npubench calibrate` reads a run, with seconds on the run's clock. Requests that
    were not served to their end are left out."""
    return "".join(
        json.dumps(
            {
                "request_id": one.id,
                "input_toks": one.prompt_tokens,
                "output_toks": one.output_tokens,
                "queued_ts": one.arrival_s,
                "scheduled_ts": one.scheduled_s,
                "first_token_ts": one.token_times_s[0],
                "last_token_ts": one.token_times_s[-1],
                "num_preemptions": one.num_preemptions,
            }
        )
        + "\n"
        for one in records
        if one.finished
    )


def engine_text(settings: Mapping[str, object], engine: Mapping[str, object], *, kv_capacity_tokens: int) -> str:
    """Writes the engine's settings and arguments as the meta.json beside a run's requests, with vLLM's names."""
    names = {"chunk_size_tokens": "max_num_batched_tokens", "max_batch_size": "max_num_seqs"}
    chosen = {name: settings[ours] for ours, name in names.items() if settings.get(ours) is not None}
    about = {
        "engine": "npubench simulate",
        "engine_kwargs": {**chosen, **engine},
        "kv_cache": {"num_kv_tokens": kv_capacity_tokens},
    }
    return json.dumps(about, indent=1) + "\n"


def timeline_text(log: IterationLog) -> str:
    """Writes the iterations as CSV, one a line: the columns of serving/log.py."""
    columns = {name: values for name, values in log.columns().items() if name != "energy_j"}
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(columns)
    rows.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()


@contextmanager
def new_content(path: Path) -> Iterator[BinaryIO]:
    """The new content of a file as core/regular_file.py replaces it. Raises StoreError where that is impossible, at
    once where nothing can be written there."""
    try:
        with replacing(path) as file:
            yield file
    except OSError as error:
        raise StoreError(f"{error.filename or path}: {error.strerror or error}") from error


def write(path: Path, text: str) -> None:
    """Replaces a file. Raises StoreError as `new_content`."""
    with new_content(path) as file:
        file.write(text.encode())
