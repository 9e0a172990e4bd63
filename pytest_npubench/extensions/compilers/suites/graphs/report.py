"""What a campaign of graphs shows: stairs and steps of a phone, or what Qualcomm's compiler made."""

from __future__ import annotations

from pytest_npubench.extensions.compilers.suites.graphs.htp_report import (
    chunk_table,
    htp_chart,
    htp_lines,
    htp_profiles,
    htp_table,
    product_table,
)
from pytest_npubench.reports.build import of_kind
from pytest_npubench.reports.page import Parts
from pytest_npubench.suites.buckets.kinds.steps import StepsDetail
from pytest_npubench.suites.buckets.profile_detail import ProfileDetail
from pytest_npubench.suites.buckets.report.profile import bucket_charts
from pytest_npubench.suites.buckets.report.steps import steps_chart
from pytest_npubench.verdict.case_record import Cases


def parts(cases: Cases) -> Parts:
    if htp := htp_profiles(cases):
        tables = (htp_table(htp), chunk_table(cases), product_table(cases))
        return tuple(of_kind("layers", [htp_chart(htp)])), tables, ()
    stairs = of_kind("profile", bucket_charts(cases.of("profile", ProfileDetail)))
    return (*stairs, *of_kind("steps", [steps_chart(cases.of("steps", StepsDetail))])), (), ()


def lines(cases: Cases) -> list[str]:
    """Of each compiled campaign a line for each bucket."""
    lines: list[str] = []
    for campaign, members in cases.by(lambda record: record.campaign).items():
        if htp := htp_profiles(members):
            lines += htp_lines(campaign, htp)
    return lines
