"""Experiments with a row for each policy or chunk size, the paper's figures of it in a row below: Tables 10 and 2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_npubench.reports import definitions, number_text
from pytest_npubench.reports.page import Table
from pytest_npubench.reports.record_fields import Record, finite, number, numbers, table, text
from pytest_npubench.reports.reported import LAYERED_PREFILL, conditions, label, reported
from pytest_npubench.reports.served_loads import load_name, workload_of

UNAVAILABLE = "unavailable"
NO_BREAK = "\u00a0"
Columns = Mapping[str, tuple[str, float, str, float]]

# our name of a column -> heading, what turns ours into its unit, the paper's column, what turns theirs into it
APART: Columns = {
    "ttft_mean_s": ("mean TTFT, ms", 1e3, "ttft_mean", 1e3),
    "ttft_p99_s": ("p99 TTFT, ms", 1e3, "ttft_p99", 1e3),
    "tbt_mean_s": ("mean TBT, ms", 1e3, "tbt_mean", 1.0),
    "tbt_p99_s": ("p99 TBT, ms", 1e3, "tbt_p99", 1.0),
}
CHUNKS: Columns = {
    "rate_per_s": ("rate, req/s", 1.0, "rate", 1.0),
    "ttft_mean_s": ("mean TTFT, ms", 1e3, "ttft_mean", 1e3),
    "tbt_mean_s": ("mean TBT, ms", 1e3, "tbt_mean", 1.0),
    "tbt_p99_s": ("p99 TBT, ms", 1e3, "tbt_p99", 1.0),
    "expert_load_bytes_per_request": ("expert bytes a request, GB", 1e-9, "expert_load", 1.0),
    "mj_per_prompt_and_output_token": ("energy per prompt and output token, mJ", 1.0, "energy", 1.0),
}
REPORTED_CHUNKS = (512, 1024, 2048)  # of Table 2


def apart_table(record: Record) -> Table:
    """Prefill and decode in processes of their own beside the policies that have both in one."""
    policies = table(table(record, "detail"), "policies")
    rows = []
    for policy in policies:
        rows.append((policy, *_cells(APART, table(policies, policy))))
        rows += _reported("10", APART, f"{policy}, reported", policy=policy)
    return Table(
        caption=f"Prefill and decode apart: {load_name(record)}",
        note=f"{definitions.APART} {_in_words(record)} {label(conditions('10'))}",
        header=("policy", *(heading for heading, *_ in APART.values())),
        rows=tuple(rows),
    )


def chunk_rate_table(record: Record) -> Table:
    """What each chunk size bears, and costs, at one TTFT."""
    detail = table(record, "detail")
    found = detail.get("rows")
    known = [row for row in found if isinstance(row, Mapping)] if isinstance(found, (list, tuple)) else []
    rows: list[tuple[str, ...]] = []
    for row in known:
        cells = _cells(CHUNKS, row)
        cells[0] += _ends(finite(row.get("rate_interval")))
        rows.append((f"{number_text.count(number(row, 'chunk_size_tokens'))} tokens", *cells))
    if not known:
        rows = [
            (f"{number_text.count(size)} tokens", *[UNAVAILABLE] * len(CHUNKS))
            for size in numbers(detail, "chunk_size_tokens")
        ]
    for size in REPORTED_CHUNKS:
        rows += _reported("2", CHUNKS, f"{size:,} tokens, reported", chunk_size=size)
    return Table(
        caption=f"Chunk sizes at one TTFT: {workload_of(record)}",
        note=f"{_limit(detail)}{definitions.CHUNK_RATES} {_why(record, known)}{label(conditions('2'))}",
        header=("chunk", *(heading for heading, *_ in CHUNKS.values())),
        rows=tuple(rows),
    )


def _cells(columns: Columns, row: Record) -> list[str]:
    values = [(number(row, name), factor) for name, (_, factor, _, _) in columns.items()]
    return [UNAVAILABLE if value is None else number_text.plain(value * factor) for value, factor in values]


def _reported(number_of_table: str, columns: Columns, name: str, **row: float | str) -> list[tuple[str, ...]]:
    """The paper's row of that name; none where it has no such row."""
    cells = [
        reported(number_of_table, theirs, factor, paper=LAYERED_PREFILL, **row)
        for _, _, theirs, factor in columns.values()
    ]
    return [] if set(cells) == {number_text.UNKNOWN} else [(name.replace(" ", NO_BREAK), *cells)]


def _in_words(record: Record) -> str:
    """The ratios with their intervals, and what was handed over."""
    detail, metrics = table(record, "detail"), table(record, "metrics")
    parts = []
    for name, key in (("TBT", "tbt"), ("TTFT", "ttft")):
        ratio = number(table(metrics, f"{key}_apart_over_layered"), "value")
        if ratio is not None:
            parts.append(f"Mean {name}, apart / layered: {ratio:.3g}{_ends(numbers(detail, f'{key}_interval'))}.")
    moved = table(detail, "handover")
    count, num_bytes, mean_s = (number(moved, name) for name in ("num_requests", "bytes", "mean_s"))
    if count and num_bytes is not None and mean_s is not None:
        each, took = number_text.plain(num_bytes / count / 1e6), number_text.milliseconds(mean_s)
        parts.append(f"{number_text.count(count)} requests handed over, {each} MB each, in {took} ms.")
    return " ".join(parts)


def _limit(detail: Record) -> str:
    limit_s = number(detail, "ttft_limit_s")
    return "" if limit_s is None else f"At a median TTFT of {number_text.milliseconds(limit_s)} ms. "


def _why(record: Record, known: Sequence[Record]) -> str:
    """Which columns go the paper's way; without any, why there are none."""
    if not known:
        reason = text(table(record, "verdict"), "reason")
        return f"{reason[0].upper()}{reason[1:]}. " if reason else ""
    ways = table(table(record, "detail"), "as_published")
    against = [CHUNKS[name][0] for name in CHUNKS if ways.get(name) is False]
    if not ways:
        return ""
    return f"Not in the paper's order: {', '.join(against)}. " if against else "All columns are in the paper's order. "


def _ends(ends: Sequence[float]) -> str:
    return f" ({ends[0]:.3g}{NO_BREAK}to{NO_BREAK}{ends[1]:.3g})" if len(ends) == 2 else ""
