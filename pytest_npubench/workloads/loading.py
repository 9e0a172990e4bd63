"""A user's trace file as a workload: the format stated, or found from the file's ending and header.

.csv is told apart by its header, .jsonl is Mooncake, .json is ShareGPT; any other ending by the first character:
"{" for JSON lines, "[" for a JSON list, anything else for CSV.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import resources
from pathlib import Path

from pytest_npubench.errors import WorkloadError
from pytest_npubench.workloads.csv_traces import CSV_FORMATS, csv_format_of
from pytest_npubench.workloads.mooncake import read_mooncake
from pytest_npubench.workloads.reading import TimeUnit, TraceColumns, opened
from pytest_npubench.workloads.sharegpt import CHARACTERS_PER_TOKEN, CountTokens, approximate_tokens, read_sharegpt
from pytest_npubench.workloads.trace import TraceWorkload

_CSV_BY_NAME = {csv_format.name: csv_format for csv_format in CSV_FORMATS}
FORMATS = (*_CSV_BY_NAME, "mooncake", "sharegpt")


def load(
    path: str | Path,
    *,
    file_format: str | None = None,
    count_tokens: CountTokens | None = None,
    time_unit: TimeUnit | None = None,
    block_tokens: int | None = None,
) -> TraceWorkload:
    """Returns the trace in a file. count_tokens maps a text to its number of tokens; only ShareGPT files hold text.
    time_unit is that of the arrivals, block_tokens the tokens of each id of a prompt; None: as the file itself shows.

    file_format is one of FORMATS, or None to find it. Raises WorkloadError naming file, line, column and value.
    """
    path = Path(path)
    if file_format is not None and file_format not in FORMATS:
        raise WorkloadError(f"unknown trace format {file_format!r}; want one of: {', '.join(FORMATS)}")
    name = file_format or _format_of(path)
    if name == "mooncake":
        columns = read_mooncake(path, time_unit, block_tokens)
    elif name == "sharegpt":
        columns = read_sharegpt(path, count_tokens or approximate_tokens)
    else:
        columns = _CSV_BY_NAME[name].read(path, time_unit)
    approximate = name == "sharegpt" and count_tokens is None
    return TraceWorkload(
        name=path.name,
        kind="trace, approximate lengths" if approximate else "trace",
        source=f"{path} ({name})",
        note=_note(columns, approximate),
        input_tokens=columns.input_tokens,
        output_tokens=columns.output_tokens,
        arrival_s=columns.arrival_s,
        num_unusable=columns.num_unusable,
        content=columns.content,
    )


def _format_of(path: Path) -> str:
    ending = Path(path.name.lower().removesuffix(".gz")).suffix
    by_ending = {".jsonl": "mooncake", ".json": "sharegpt"}.get(ending)
    if by_ending is not None:
        return by_ending
    first = "" if ending == ".csv" else _first_character(path)
    return {"{": "mooncake", "[": "sharegpt"}.get(first) or csv_format_of(path).name


def _first_character(path: Path) -> str:
    with opened(path) as stream:
        return stream.read(4096).lstrip()[:1]


def _note(columns: TraceColumns, approximate: bool) -> str:
    parts = [f"{len(columns.input_tokens)} requests"]
    if columns.num_unusable:
        parts.append(f"{columns.num_unusable} more without a prompt or an answer left out")
    if approximate:
        parts.append(f"lengths approximated as {CHARACTERS_PER_TOKEN} characters a token, rounded up")
    parts += columns.notes
    return "; ".join(parts)


def trace_sample(name: str) -> TraceWorkload:
    assert name == "azure-conv-sample"  # the registry knows no other
    data = resources.files("pytest_npubench.workloads").joinpath("data/azure_conv_sample.csv")
    with resources.as_file(data) as path:
        return replace(
            load(path, file_format="azure"),
            name=name,
            kind="trace sample",
            source="Azure LLM inference trace 2023, conversation (Azure/AzurePublicDataset, CC-BY-4.0)",
            note="1,000 of 19,366 rows, picked at random and kept in order: arrivals come at 1/19 of the trace's rate",
        )
