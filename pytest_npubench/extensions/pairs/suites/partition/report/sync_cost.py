"""Signals between the units, a row for each way of waiting; what the paper prints of its own below."""

from __future__ import annotations

from pytest_npubench.extensions.pairs.suites.partition.kinds.sync_cost import SyncCostDetail
from pytest_npubench.reports import number_text
from pytest_npubench.reports.build import plain, ratio, table
from pytest_npubench.reports.page import Table
from pytest_npubench.reports.reported import HETERO_INFER, conditions, label, reported
from pytest_npubench.verdict.case_record import CaseRecord

SYNC = "GPU-2: a signal to the other unit and back, by each way of waiting; p99 needs 100 trips."


def sync_table(record: CaseRecord[SyncCostDetail]) -> Table:
    detail, unknown = record.detail, number_text.UNKNOWN
    rows, cols, _ = detail.operator
    fast, slow = ratio(detail.fast_speedup), ratio(detail.slow_speedup)
    halves = (
        f"One token of a weight [{rows}, {cols}], rows in halves: best unit alone / split {fast} fast, {slow} slow."
    )
    theirs = label(
        *(conditions(place, paper=HETERO_INFER) for place in ("section 3.1", "section 4.3")), paper=HETERO_INFER
    )
    finish = reported("section 3.1", "latency", paper=HETERO_INFER, operation="clFinish")
    low, high = (reported("section 4.3", end, paper=HETERO_INFER, operation="usleep") for end in ("low", "high"))
    return table(
        "Signals between the units",
        (
            ("mechanism", lambda trips: trips.mechanism),
            ("round trip p50 µs", lambda trips: plain(trips.p50_s * 1e6)),
            ("p99 µs", lambda trips: plain(None if trips.p99_s is None else trips.p99_s * 1e6)),
            ("trips", lambda trips: number_text.count(trips.num_trips)),
        ),
        detail.mechanisms,
        note=f"{SYNC} {halves} {theirs}",
        last=(
            ("clFinish, reported", finish, unknown, unknown),
            ("shortest usleep, reported", f"{low} to {high}", unknown, unknown),
        ),
    )
