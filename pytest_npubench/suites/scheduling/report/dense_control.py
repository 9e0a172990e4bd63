"""The control, where layered prefill has nothing to save."""

from __future__ import annotations

from pytest_npubench.reports.page import Table
from pytest_npubench.reports.reported import conditions, label
from pytest_npubench.suites.scheduling.kinds.dense_control import DenseControlDetail
from pytest_npubench.suites.scheduling.report.cells import load_name
from pytest_npubench.suites.scheduling.report.comparison import (
    FigureRow,
    comparison_table,
    ratio_of,
    reported_by_policy,
)
from pytest_npubench.verdict.case_record import CaseRecord

DENSE = (
    "A dense decoder has no expert loads to save: layered prefill must not win here. Ratios are means over pairs of "
    "blocks that served the same requests."
)


def dense_table(case: CaseRecord[DenseControlDetail]) -> Table:
    ttft = ratio_of(case, "ttft_ratio", case.detail.ttft_ratio_interval)
    rows = [
        FigureRow("mean TTFT, ms", (), ttft, reported_by_policy("5.13", "ttft_mean", 1e3)),
        FigureRow("mean TBT, ms", (), ratio_of(case, "tbt_ratio"), reported_by_policy("5.13", "tbt_mean")),
        FigureRow("mean E2E", (), ratio_of(case, "e2e_ratio")),
    ]
    note = f"{DENSE} {label(conditions('5.13', rate=1.5))}"
    return comparison_table(f"Dense control: {load_name(case, case.detail.rate_per_s)}", note, rows)
