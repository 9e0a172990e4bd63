"""A case judged on scripted samples, and its judgement back from JSON."""

from __future__ import annotations

from made_records import judged_record

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.protocol import CampaignPlan
from pytest_npubench.core.case import Case
from pytest_npubench.suites import case_kind
from pytest_npubench.verdict.case_record import judgement_of
from pytest_npubench.verdict.result import Judgement, Metric


def judgement_on(case: Case, plan: CampaignPlan, measured: Measured) -> Judgement:
    """The judgement of a case's kind, whose metrics JSON leaves unchanged."""
    judgement = case_kind(case.kind).judge(case, plan, measured)
    again = judgement_of(judged_record(case, judgement))
    assert [metric.value for metric in again.metrics] == [metric.value for metric in judgement.metrics]
    return judgement


def metric(judgement: Judgement, name: str) -> Metric:
    (named,) = [each for each in judgement.metrics if each.name == name]
    return named
