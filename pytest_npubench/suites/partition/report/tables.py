"""Tables of the partition suite: orders and shapes on the static unit, signals between the units, waiting in chains."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from pytest_npubench.reports import number_text
from pytest_npubench.reports.page import Table
from pytest_npubench.reports.pair_cells import (
    entries,
    microseconds,
    milliseconds,
    of_kind,
    operator_of,
    ratio,
    without_unknown_columns,
)
from pytest_npubench.reports.record_fields import Record, number, numbers, table
from pytest_npubench.reports.reported import HETERO_INFER, conditions, reported
from pytest_npubench.reports.reported import label as reported_label
from pytest_npubench.reports.reported_figures import figures_table
from pytest_npubench.suites.partition.report import notes as partition_notes
from pytest_npubench.suites.partition.report.solver import solver_tables

PHASES = ("decode", "prefill")
RATIOS = (
    ("npu_order", "order_ratio", ("activation_first_s", "weight_first_s")),
    ("npu_shape", "shape_ratio", ("wide_s", "tall_s")),
)
RATIO_HEADER = (
    "operator",
    "NPU-2: activation first / weight first",
    "activation first ms",
    "weight first ms",
    "NPU-3: wide / tall",
    "wide ms",
    "tall ms",
)
HEADLINES = (
    ("figure 12", "speedup"),
    ("figure 13", "speed"),
    ("figure 13 speedup", "speedup"),
    ("figure 15", "rate"),
    ("figure 15 speedup", "speedup"),
    ("figure 16", "speed"),
)


def partition_tables(records: Sequence[Record]) -> tuple[Table, ...]:
    """Every table that these cases of one model on one device have data for; the paper's headlines last."""
    tables = (
        *solver_tables(records),
        *map(overlap_table, of_kind(records, "overlap")),
        *map(sync_table, of_kind(records, "sync_cost")),
        ratio_table(records),
    )
    shown = tuple(item for item in tables if item is not None)
    is_measured = any(table(record, "detail") for record in records)
    return (*shown, *((figures_table(HETERO_INFER, HEADLINES),) if is_measured else ()))


def ratio_table(records: Iterable[Record]) -> Table | None:
    """NPU-2 and NPU-3, a row an operator; a square weight has no other shape."""
    records = tuple(records)
    found: dict[str, dict[str, Record]] = {}
    for kind, _, _ in RATIOS:
        for record in of_kind(records, kind):
            found.setdefault(operator_of(record), {})[kind] = table(record, "detail")
    if not found:
        return None
    rows = [
        (operator, *(cell for kind, name, times in RATIOS for cell in _ratio_cells(details.get(kind, {}), name, times)))
        for operator, details in found.items()
    ]
    order = reported("figure 4", "low", paper=HETERO_INFER, characteristic="order_ratio")
    shape = [
        reported("figure 4", end, paper=HETERO_INFER, characteristic="ffn_down_speedup") for end in ("low", "high")
    ]
    theirs = reported_label(
        conditions("figure 4", paper=HETERO_INFER),
        f"NPU-2 {order} for [14336, 4096] x [4096, K]",
        f"NPU-3: feed-forward down on the NPU at {' to '.join(shape)} times the GPU's speed",
        paper=HETERO_INFER,
    )
    header, *body = without_unknown_columns(RATIO_HEADER, rows)
    return Table(
        caption="Operand order and weight shape on the static unit",
        note=f"{partition_notes.RATIOS} {theirs}",
        header=header,
        rows=tuple(body),
    )


def sync_table(record: Record) -> Table:
    """A row for each way of waiting; what the paper prints of its own below."""
    detail = table(record, "detail")
    rows = [
        (
            str(row.get("mechanism") or "a mechanism"),
            microseconds(row, "p50_s"),
            microseconds(row, "p99_s"),
            number_text.count(number(row, "num_trips")),
        )
        for row in entries(detail, "mechanisms")
    ]
    shape = numbers(detail, "operator")
    operator = f" of a weight [{shape[0]:.0f}, {shape[1]:.0f}]" if len(shape) == 3 else ""
    fast, slow = (ratio(number(detail, f"{speed}_speedup")) for speed in ("fast", "slow"))
    halves = f"One token{operator}, rows in halves: best unit alone / split {fast} fast, {slow} slow."
    theirs = reported_label(
        *(conditions(place, paper=HETERO_INFER) for place in ("section 3.1", "section 4.3")), paper=HETERO_INFER
    )
    unknown = number_text.UNKNOWN
    finish = reported("section 3.1", "latency", paper=HETERO_INFER, operation="clFinish")
    sleep = [reported("section 4.3", end, paper=HETERO_INFER, operation="usleep") for end in ("low", "high")]
    return Table(
        caption="Signals between the units",
        note=f"{partition_notes.SYNC} {halves} {theirs}",
        header=("mechanism", "round trip p50 µs", "p99 µs", "trips"),
        rows=(
            *rows,
            ("clFinish, reported", finish, unknown, unknown),
            ("shortest usleep, reported", " to ".join(sleep), unknown, unknown),
        ),
    )


def overlap_table(record: Record) -> Table:
    """Chains by phase: fast and slow signals, all of it queued, and what an operator has exposed."""
    detail = table(record, "detail")
    rows = [(phase, *_overlap_cells(table(detail, phase)), _reported_gain(phase)) for phase in PHASES]
    theirs = reported_label(
        *(conditions(place, paper=HETERO_INFER) for place in ("figure 16 gain", "figure 17")), paper=HETERO_INFER
    )
    return Table(
        caption="Waiting in chains of dependent operators",
        note=f"{partition_notes.OVERLAP} {theirs}",
        header=(
            "phase",
            "weight x tokens",
            "chain fast ms",
            "chain slow ms",
            "queued ms",
            "slow / fast",
            "exposed fast µs",
            "exposed slow µs",
            "reported gain of fast",
        ),
        rows=tuple(rows),
    )


def _ratio_cells(detail: Record, name: str, times: Sequence[str]) -> tuple[str, ...]:
    samples = (numbers(detail, field) for field in times)
    medians = (number_text.milliseconds(statistics.median(values) if values else None) for values in samples)
    return (ratio(number(detail, name), numbers(detail, f"{name}_interval")), *medians)


def _overlap_cells(phase: Record) -> tuple[str, ...]:
    shape = numbers(phase, "operator")
    count = number_text.count(number(phase, "num_operators"))
    return (
        f"{count} of [{shape[0]:.0f}, {shape[1]:.0f}] x {shape[2]:.0f}" if len(shape) == 3 else number_text.UNKNOWN,
        *(milliseconds(phase, name) for name in ("fast_s", "slow_s", "queued_s")),
        ratio(number(phase, "fast_speedup")),
        *(microseconds(phase, name) for name in ("fast_exposed_s", "slow_exposed_s")),
    )


def _reported_gain(phase: str) -> str:
    if phase == "prefill":
        return f"+{reported('figure 16 gain', 'gain', paper=HETERO_INFER, system='hetero-tensor')} %"
    return f"{reported('figure 17', 'speedup', paper=HETERO_INFER, model='llama-8b')} times"
