"""A case judged on scripted samples, and its judgement back from JSON."""

from __future__ import annotations

import json

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.protocol import CampaignPlan
from pytest_npubench.core.case import Case
from pytest_npubench.suites import case_kind
from pytest_npubench.verdict.case_record import judgement_of
from pytest_npubench.verdict.result import JudgedCase, Judgement, Metric


def judgement_on(case: Case, plan: CampaignPlan, measured: Measured) -> Judgement:
    """The judgement of a case's kind, whose metrics JSON leaves unchanged."""
    judgement = case_kind(case.kind).judge(case, plan, measured)
    whole = JudgedCase(
        case=case,
        digest=case.digest(plan.settings),
        node_id="n",
        device="d",
        fingerprint=None,
        duration_s=1.0,
        judgement=judgement,
    )
    again = judgement_of(json.loads(json.dumps(whole.to_json(), allow_nan=False)))
    assert [metric.value for metric in again.metrics] == [metric.value for metric in judgement.metrics]
    return judgement


def metric(judgement: Judgement, name: str) -> Metric:
    (named,) = [each for each in judgement.metrics if each.name == name]
    return named
