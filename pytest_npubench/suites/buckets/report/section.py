"""What a bucket campaign shows: its section of a report, and its lines at the end of a run."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_npubench.campaign.answer_judgement import AnswersDetail
from pytest_npubench.reports.answers import answers_table
from pytest_npubench.reports.build import of_kind
from pytest_npubench.reports.drift import drift_chart
from pytest_npubench.reports.page import Parts, Rounds
from pytest_npubench.reports.reported import LENS
from pytest_npubench.reports.reported_figures import figures_table
from pytest_npubench.suites.buckets import SUITE
from pytest_npubench.suites.buckets.kinds.band_coverage import CoverageDetail
from pytest_npubench.suites.buckets.kinds.fusion import FusionDetail
from pytest_npubench.suites.buckets.kinds.mean_error import MeanErrorDetail
from pytest_npubench.suites.buckets.kinds.prediction import PredictionDetail
from pytest_npubench.suites.buckets.kinds.steps import StepsDetail
from pytest_npubench.suites.buckets.points import seconds_in
from pytest_npubench.suites.buckets.profile_detail import ProfileDetail
from pytest_npubench.suites.buckets.report.continuous_lines import continuous_lines
from pytest_npubench.suites.buckets.report.fusion import fusion_table
from pytest_npubench.suites.buckets.report.prediction import (
    coverage_lines,
    error_lines,
    judged,
    mean_error_lines,
    padding_lines,
    prediction_charts,
    rival_lines,
    rival_title,
)
from pytest_npubench.suites.buckets.report.profile import (
    binding_table,
    bucket_charts,
    cost_lines,
    cost_table,
    energy_table,
    price_table,
)
from pytest_npubench.suites.buckets.report.steps import steps_chart
from pytest_npubench.verdict.case_record import CaseRecord, Cases

PRINTED = (
    ("figure 6", "error"),
    ("figure 7", "error"),
    ("3", "error"),
    ("5.3 cost", "time"),
    ("5.3 compilations", "compilations"),
    ("figure 8", "batch_size"),
    ("5.4", "change"),
)
"""Tables of the LENS paper, and their column of values."""


def parts(cases: Cases, rounds: Rounds) -> Parts:
    profiles = cases.of("profile", ProfileDetail)
    charts = [
        *of_kind("profile", bucket_charts(profiles)),
        *of_kind("steps", [steps_chart(cases.of("steps", StepsDetail))]),
        drift_chart([{**record, "points": seconds_in(record["points"])} for record in rounds]),
        *of_kind("prediction", prediction_charts(judged(cases.of("prediction", PredictionDetail)))),
    ]
    remarks = [
        *(f"{line}." for line in continuous_lines(cases)),
        *_mean_errors(cases.of("mean_error", MeanErrorDetail)),
        *(f"{line}." for line in coverage_lines(cases.of("band_coverage", CoverageDetail))),
        *(f"{line}." for line in _of_shown_kinds(cases)),
    ]
    printed = figures_table(LENS, PRINTED) if cases.of("mean_error", MeanErrorDetail) else None
    return (
        tuple(chart for chart in charts if chart is not None),
        (
            answers_table(cases.of("answers", AnswersDetail)),
            cost_table(profiles),
            energy_table(profiles),
            price_table(profiles),
            binding_table(profiles),
            *(table for kind in SUITE.shown_kinds() for table in kind.tables(cases)),
            fusion_table(cases.of("fusion", FusionDetail)),
            printed,
        ),
        tuple(remarks),
    )


def lines(cases: Cases) -> list[str]:
    """Errors and costs of LENS and its rivals, engines without buckets, padding waste."""
    found = cases.of("prediction", PredictionDetail)
    return [
        *error_lines(judged(found)),
        *mean_error_lines(cases.of("mean_error", MeanErrorDetail)),
        *_of_shown_kinds(cases),
        *coverage_lines(cases.of("band_coverage", CoverageDetail)),
        *cost_lines(cases.of("profile", ProfileDetail)),
        *rival_lines(found),
        *continuous_lines(cases),
        *padding_lines(found),
    ]


def _of_shown_kinds(cases: Cases) -> list[str]:
    return [line for kind in SUITE.shown_kinds() for line in kind.lines(cases)]


def _mean_errors(found: Sequence[CaseRecord[MeanErrorDetail]]) -> list[str]:
    """What the mean_error case of the campaign says."""
    remarks = []
    for detail in (case.detail for case in found):
        remarks.append(
            f"Mean prediction error {detail.mean:.2%} (signed mean {detail.signed_mean:.2%}, "
            f"median {detail.median:.2%}, p90 {detail.p90:.2%}, max {detail.max:.2%})."
        )
        remarks += [
            f"Mean prediction error of {rival_title(name, rival)}, a rival: {rival.mean:.2%}."
            for name, rival in detail.predictors.items()
            if rival.mean is not None
        ]
    return remarks
