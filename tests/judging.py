"""A case judged on scripted samples, and what kinds of all suites keep."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from made_records import judged_record

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.protocol import CampaignPlan
from pytest_npubench.core.case import Case
from pytest_npubench.errors import MeasurementError
from pytest_npubench.suites import case_kind
from pytest_npubench.verdict.case_record import judgement_of
from pytest_npubench.verdict.result import Judgement, Metric


def judgement_on(case: Case, plan: CampaignPlan, measured: Measured) -> Judgement:
    """The judgement of a case's kind, whose metrics JSON leaves unchanged."""
    judgement = case_kind(case.kind, (case.suite,)).judge(case, plan, measured)
    again = judgement_of(judged_record(case, judgement))
    assert [metric.value for metric in again.metrics] == [metric.value for metric in judgement.metrics]
    return judgement


def metric(judgement: Judgement, name: str) -> Metric:
    (named,) = [each for each in judgement.metrics if each.name == name]
    return named


def assert_told_apart(
    suite: str, name: str, plan: CampaignPlan, cases: Sequence[Case], *, may_repeat: bool = False
) -> None:
    """Cases of a kind have plain ids of their own, and points that are the same each time and named once. A point may
    stand twice in a case where `may_repeat`."""
    kind = case_kind(name, (suite,))
    assert cases
    assert (kind.suite, kind.name) == (suite, name)
    assert len({case.id for case in cases}) == len(cases)
    assert not any(character in case.id for case in cases for character in "/[]: ")
    for case in cases:
        points = kind.points(case, plan)
        assert points
        assert points == kind.points(case, plan)
        json.dumps([point.definition for point in points])
        assert len({point.name for point in points}) == len(set(points) if may_repeat else points)


def assert_failed_points_are_named(case: Case, plan: CampaignPlan) -> None:
    kind = case_kind(case.kind, (case.suite,))
    failures = {point.name: "out of memory" for point in kind.points(case, plan)}
    with pytest.raises(MeasurementError, match="out of memory"):
        kind.judge(case, plan, Measured(failures=failures))
