"""Tokens of the same requests under several policies, by checksums that a journal keeps."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.served_block import ServedBlock
from pytest_npubench.errors import MeasurementError
from pytest_npubench.serving.log import IterationLog
from pytest_npubench.serving.metrics import RequestRecord, Slo
from pytest_npubench.serving.result import ServingResult
from pytest_npubench.suites import case_kind
from pytest_npubench.verdict import VerdictKind

from .conftest import kept, serving_plan

KIND = case_kind("identical_tokens")
SLO = Slo(ttft_s=1.0, tbt_s=1.0)


def plan_in(dtype: str, policies=("chunked", "layered", "hybrid")):
    plan = serving_plan(policies=policies)
    return replace(plan, serving=replace(plan.serving, dtype=dtype))


def case_of(plan):
    (case,) = (plan.case("scheduling", "identical_tokens", axes) for axes in KIND.axes(plan))
    return case


def result(policy: str, tokens: list[tuple[int, ...]], aborted: str | None = None) -> ServingResult:
    records = tuple(
        RequestRecord(
            id=index,
            arrival_s=0.0,
            dispatched_s=0.0,
            scheduled_s=0.0,
            prompt_tokens=4,
            output_tokens=len(given),
            token_times_s=tuple(1.0 + at for at in range(len(given))),
            tokens=given,
            aborted=aborted if index == 0 else None,
        )
        for index, given in enumerate(tokens)
    )
    return ServingResult(
        records=records,
        log=IterationLog(),
        clock="wall",
        policy=policy,
        settings={},
        started_s=0.0,
        ended_s=9.0,
        num_layers=2,
    )


def judged(plan, *rounds, without=()):
    """Each round is the tokens of its requests by policy, or of all policies alike; as read back from a journal."""
    case = case_of(plan)
    rows = []
    for tokens in rounds:
        row = {}
        for point in KIND.points(case, plan):
            given = tokens.get(point.policy, tokens["chunked"])
            served = given if isinstance(given, ServingResult) else result(point.policy, given)
            row |= kept(point, ServedBlock.of_result(served, rate_per_s=1.0, slo=SLO))
        rows.append({name: values for name, values in row.items() if name.rpartition("/")[2] not in without})
    return KIND.judge(case, plan, Measured(rounds=json.loads(json.dumps(rows))))


ROUND = {"chunked": [(1, 2, 3), (4, 5)]}


def test_the_same_tokens_pass():
    found = judged(plan_in("fp32"), ROUND, ROUND)
    assert found.verdict.kind is VerdictKind.PASSED
    assert found.what == "tokens of 4 requests under layered and hybrid against chunked: identical"
    assert {metric.value for metric in found.metrics} == {0}


@pytest.mark.parametrize("other", [[(1, 2, 3), (5, 4)], [(1, 2, 4), (4, 5)], [(12, 3), (4, 5)]])
def test_in_fp32_one_other_token_fails(other):
    """Also tokens in another order, and (12, 3) in place of (1, 2, 3)."""
    found = judged(plan_in("fp32"), ROUND, {**ROUND, "hybrid": other})
    assert found.verdict.kind is VerdictKind.FAILED
    assert "requests with other tokens than under chunked 1 > 0" in found.verdict.reason
    index = 0 if other[0] != (1, 2, 3) else 1
    assert found.detail.round_and_request == {"layered": (), "hybrid": ((1, index),)}


def test_in_bf16_it_is_shown_with_the_reason_and_not_judged():
    found = judged(plan_in("bf16"), {**ROUND, "layered": [(1, 2, 9), (4, 9)]})
    assert found.verdict.kind is VerdictKind.PASSED
    assert "layered differs in 2; not judged: in bf16 the rows that are computed together change" in found.what
    assert found.detail.is_judged is False


def test_the_policies_that_a_profile_serves_and_layered_in_any():
    for policies, expected in (
        (("chunked", "layered"), ["chunked", "layered"]),
        (("static", "chunked", "layered", "hybrid"), ["chunked", "layered", "hybrid"]),
        (("continuous",), ["chunked", "layered"]),
    ):
        plan = plan_in("fp32", policies)
        assert [point.policy for point in KIND.points(case_of(plan), plan)] == expected


def test_its_blocks_are_those_of_the_policy_cases():
    plan = plan_in("fp32")
    policy = case_kind("policy")
    cases = [plan.case("scheduling", "policy", axes) for axes in policy.axes(plan)]
    points = {point for case in cases for point in policy.points(case, plan)}
    assert set(KIND.points(case_of(plan), plan)) <= points


def test_a_journal_without_checksums_is_said_and_not_taken_for_identical():
    with pytest.raises(MeasurementError, match="block 0 has no checksums of its tokens"):
        judged(plan_in("fp32"), ROUND, without=("request.tokens_crc",))


def test_a_request_that_failed_cannot_be_compared():
    died = result("layered", ROUND["chunked"], aborted="the engine died")
    with pytest.raises(MeasurementError, match="1 of 2 requests failed: the engine died"):
        judged(plan_in("fp32"), {**ROUND, "layered": died})
