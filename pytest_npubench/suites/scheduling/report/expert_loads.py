"""Expert bytes of the same requests, and what else changed."""

from __future__ import annotations

from pytest_npubench.reports.page import Table
from pytest_npubench.reports.reported import conditions, label
from pytest_npubench.reports.reported import workload_of as workload_in
from pytest_npubench.suites.scheduling.kinds.expert_loads import ExpertLoadsDetail
from pytest_npubench.suites.scheduling.report.cells import available, load_name, workload_of
from pytest_npubench.suites.scheduling.report.comparison import (
    FigureRow,
    comparison_table,
    ratio_of,
    reported_by_policy,
)
from pytest_npubench.verdict.case_record import CaseRecord

EXPERT_LOADS = (
    "Experts loaded by each iteration, summed over layers and iterations, times the bytes of one: the same requests "
    "under both policies, all blocks together."
)


def loads_table(case: CaseRecord[ExpertLoadsDetail]) -> Table:
    detail, workload = case.detail, workload_in("7", workload_of(case))
    loaded = [available(bytes_, 1e-9) for bytes_ in (detail.layered_bytes, detail.chunked_bytes)]
    theirs = reported_by_policy("7", "expert_load", 1e3, workload=workload)
    ratios = {"mean TTFT": "ttft_ratio", "mean TBT": "tbt_ratio", "mean E2E": "e2e_ratio"}
    rows = [
        FigureRow("expert bytes, GB", loaded, ratio_of(case, "expert_load_ratio"), theirs),
        *(FigureRow(called, (), ratio_of(case, name)) for called, name in ratios.items()),
    ]
    theirs_of = label(f"{conditions('7')}, {workload}", "totals of 100 requests")
    caption = f"Expert loads: {load_name(case, detail.rate_per_s)}"
    return comparison_table(caption, f"{EXPERT_LOADS} {theirs_of}", rows)
