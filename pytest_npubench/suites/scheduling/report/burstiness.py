"""What layered and chunked prefill did under bursty arrivals (Table 12)."""

from __future__ import annotations

from pytest_npubench.reports.build import table
from pytest_npubench.reports.page import Table
from pytest_npubench.reports.reported import conditions, label
from pytest_npubench.suites.scheduling.kinds.burstiness import BurstinessDetail
from pytest_npubench.suites.scheduling.report.cells import load_name
from pytest_npubench.suites.scheduling.report.policy import FIGURES, cell, heading, reported_smoothness
from pytest_npubench.verdict.case_record import CaseRecord


def burst_table(case: CaseRecord[BurstinessDetail]) -> Table:
    detail = case.detail
    realised = "" if detail.realised_cv is None else f", realised {detail.realised_cv:.3g}"
    return table(
        f"Bursty arrivals: {load_name(case, detail.rate_per_s)}, CV {detail.cv:.3g}{realised}",
        (
            ("figure", heading),
            ("layered", lambda name: cell(name, detail.layered.get(name))),
            ("chunked", lambda name: cell(name, detail.chunked.get(name))),
            ("reported layered", lambda name: reported_smoothness(name, "layered", cv=1.83)),
            ("reported chunked", lambda name: reported_smoothness(name, "chunked", cv=1.83)),
        ),
        [name for name in FIGURES if name in detail.layered or name in detail.chunked],
        note=label(conditions("12"), "CV 1.83"),
    )
