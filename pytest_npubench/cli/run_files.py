"""Files of a run: its requests, in the form in which runs are read, its iterations, its picture."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npubench.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from pytest_npubench.serving.log import IterationLog
    from pytest_npubench.serving.metrics import RequestRecord


def requests_text(records: Sequence[RequestRecord]) -> str:
    """A line a request, as workloads/measured_run.py reads them, seconds on the run's clock. Without those that were
    not served to their end."""
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


def timeline_text(log: IterationLog) -> str:
    """CSV, a line an iteration: the columns of serving/log.py."""
    columns = {name: values for name, values in log.columns().items() if name != "energy_j"}
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(columns)
    rows.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()


def picture_text(
    answer: Mapping[str, Any], served: Mapping[str, Sequence[RequestRecord]], facts: Sequence[tuple[str, str]]
) -> str:
    """A page. Raises ConfigError without the report extra."""
    try:
        from pytest_npubench.reports.simulation_page import simulation_page
    except ImportError as error:
        raise ConfigError(f"{error.name} is not installed: pip install pytest-npubench[report]") from error
    return simulation_page(answer, served, facts)


def search_picture_text(rows: Sequence[Mapping[str, Any]], num_settings: int) -> str:
    """A page. Raises ConfigError without the report extra."""
    try:
        from pytest_npubench.reports.search_page import search_page
    except ImportError as error:
        raise ConfigError(f"{error.name} is not installed: pip install pytest-npubench[report]") from error
    return search_page(rows, num_settings)


def write(path: Path, text: str) -> None:
    """Raises StoreError where it cannot be written."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}") from error
