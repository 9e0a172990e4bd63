"""Offline throughput with the usual iterations and with larger ones."""

from __future__ import annotations

from pytest_npubench.reports.page import Table
from pytest_npubench.reports.reported import conditions, label
from pytest_npubench.suites.scheduling.kinds.relaxed_slo import RelaxedSloDetail
from pytest_npubench.suites.scheduling.report.cells import workload_of
from pytest_npubench.suites.scheduling.report.comparison import (
    FigureRow,
    by_policy,
    comparison_table,
    ratio_of,
    reported_by_policy,
)
from pytest_npubench.verdict.case_record import CaseRecord

RELAXED = (
    "All requests are there when a block begins; tokens a second of the whole block. With larger iterations, that is "
    "longer chunks and fewer layer groups, both policies should come close to each other."
)
REPORTED = "under a relaxed limit on TBT at 2.5 req/s both have 2.47 s mean TTFT and 78.6 ms mean TBT"


def relaxed_table(case: CaseRecord[RelaxedSloDetail]) -> Table:
    rows = [
        FigureRow(
            "output tokens/s",
            by_policy(case, "{}_output_tokens_per_s"),
            ratio_of(case, "throughput_chunked_over_layered", inverse=True),
            reported_by_policy("5.9 offline", "throughput"),
        ),
        FigureRow(
            f"output tokens/s, {case.detail.relaxed_factor} times the work an iteration",
            by_policy(case, "relaxed_{}_output_tokens_per_s"),
            ratio_of(case, "relaxed_throughput_chunked_over_layered", inverse=True),
        ),
    ]
    note = f"{RELAXED} {label(conditions('5.9 offline'), REPORTED)}"
    return comparison_table(f"Offline throughput: {workload_of(case)}", note, rows)
