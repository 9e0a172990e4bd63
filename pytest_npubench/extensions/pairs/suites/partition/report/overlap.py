"""Waiting in chains of dependent operators, by phase: fast and slow signals, and what an operator has exposed."""

from __future__ import annotations

from pytest_npubench.extensions.pairs.suites.partition.kinds.overlap import OverlapDetail, PhaseDetail
from pytest_npubench.reports import number_text
from pytest_npubench.reports.build import plain, ratio, table
from pytest_npubench.reports.page import Table
from pytest_npubench.reports.reported import HETERO_INFER, conditions, label, reported
from pytest_npubench.verdict.case_record import CaseRecord

OVERLAP = (
    "Operators that depend on each other, one after the other, each split over both units; queued are the same "
    "operators without dependencies. In decode the GPU has three quarters of the rows, in prefill one. Exposed is what "
    "an operator of the chain takes beyond its slower unit."
)


def overlap_table(record: CaseRecord[OverlapDetail]) -> Table:
    gain = reported("figure 16 gain", "gain", paper=HETERO_INFER, system="hetero-tensor")
    speedup = reported("figure 17", "speedup", paper=HETERO_INFER, model="llama-8b")
    theirs = label(
        *(conditions(place, paper=HETERO_INFER) for place in ("figure 16 gain", "figure 17")), paper=HETERO_INFER
    )
    rows: tuple[tuple[str, PhaseDetail, str], ...] = (
        ("decode", record.detail.decode, f"{speedup} times"),
        ("prefill", record.detail.prefill, f"+{gain} %"),
    )
    milliseconds = number_text.milliseconds
    return table(
        "Waiting in chains of dependent operators",
        (
            ("phase", lambda row: row[0]),
            ("weight x tokens", lambda row: _operators(row[1])),
            ("chain fast ms", lambda row: milliseconds(row[1].fast_s)),
            ("chain slow ms", lambda row: milliseconds(row[1].slow_s)),
            ("queued ms", lambda row: milliseconds(row[1].queued_s)),
            ("slow / fast", lambda row: ratio(row[1].fast_speedup)),
            ("exposed fast µs", lambda row: plain(row[1].fast_exposed_s * 1e6)),
            ("exposed slow µs", lambda row: plain(row[1].slow_exposed_s * 1e6)),
            ("reported gain of fast", lambda row: row[2]),
        ),
        rows,
        note=f"{OVERLAP} {theirs}",
    )


def _operators(phase: PhaseDetail) -> str:
    rows, cols, tokens = phase.operator
    return f"{number_text.count(phase.num_operators)} of [{rows}, {cols}] x {tokens}"
