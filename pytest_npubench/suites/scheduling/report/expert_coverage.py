"""The share of a layer's experts that one decode step loads, by its batch, with the paper's beside it."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_npubench.reports import number_text
from pytest_npubench.reports.build import chart, line, series_table
from pytest_npubench.reports.page import Chart
from pytest_npubench.reports.plot_parts import BLUE, GREY, axis, log_axis, percents
from pytest_npubench.suites.scheduling.kinds.expert_coverage import ExpertCoverageDetail
from pytest_npubench.verdict.case_record import CaseRecord

EXPERT_COVERAGE = (
    "Expert coverage: distinct experts that the rows of one decode step are routed to, over the experts of a layer, "
    "mean over layers."
)
COVERAGE_REPORTED = (
    "The reported column is another model on another data set: its rise can be compared, its level only where experts "
    "and experts a token are the same."
)
REPORTED = "reported (Layered Prefill, Table 1: 128 experts, 8 a token)"
HOVER = "{x}: {y:.4g}"


def coverage_chart(cases: Sequence[CaseRecord[ExpertCoverageDetail]]) -> Chart | None:
    if not cases:
        return None
    details = sorted((case.detail for case in cases), key=lambda detail: detail.batch_size)
    sizes = [detail.batch_size for detail in details]
    ours = [number_text.percent(detail.coverage) for detail in details]
    measured = percents(detail.coverage for detail in details)
    published = percents(detail.published_coverage for detail in details)
    theirs = line(REPORTED, sizes, published, HOVER, color=GREY, symbol="square-open", dash="dash", width=2)
    title = "Expert coverage by decode batch"
    return chart(
        title,
        f"Share of its experts that a layer loads for a decode step, by the requests in it: {ours[0]} % at {sizes[0]}, "
        f"{ours[-1]} % at {sizes[-1]}.",
        (EXPERT_COVERAGE, COVERAGE_REPORTED),
        [line("measured", sizes, measured, HOVER, color=BLUE, width=2), theirs],
        (log_axis("decode batch, requests", sizes), axis("coverage, %", span=(0, 105))),
        series_table(
            title,
            "decode batch",
            [f"{size}" for size in sizes],
            {
                "measured %": ours,
                f"{REPORTED} %": [number_text.percent(detail.published_coverage) for detail in details],
            },
        ),
    )
