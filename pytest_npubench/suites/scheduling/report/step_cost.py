"""Two requests beside what an accepted step cost says of them."""

from __future__ import annotations

from pytest_npubench.reports import number_text
from pytest_npubench.reports.build import table
from pytest_npubench.reports.page import Table
from pytest_npubench.suites.scheduling.kinds.step_cost import StepCostDetail
from pytest_npubench.suites.scheduling.report.cells import reason
from pytest_npubench.verdict.case_record import CaseRecord

PROBES = "Each request ran alone, once a round; measured is the mean."


def probes_table(case: CaseRecord[StepCostDetail]) -> Table:
    detail = case.detail
    of = f"Calibrated on {detail.source}" + (f" ({detail.stack})." if detail.stack else ".")
    beyond = f" Its band is twice as wide, beyond what was calibrated on: {'; '.join(detail.beyond)}."
    return table(
        f"Does the step cost still hold: {detail.cost}",
        (
            ("figure", lambda row: row.name),
            ("measured, ms", lambda row: number_text.milliseconds(row.measured_s)),
            ("predicted, ms", lambda row: number_text.milliseconds(row.predicted_s)),
            ("from, ms", lambda row: number_text.milliseconds(row.low_s)),
            ("to, ms", lambda row: number_text.milliseconds(row.high_s)),
        ),
        detail.figures,
        note=f"{reason(case)}{PROBES} {of}{beyond if detail.beyond else ''}",
    )
