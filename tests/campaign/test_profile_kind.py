"""TTFT and TBT of a bucket out of its two points."""

import pytest

from pytest_npubench.core.measurement import CacheState, CompileRecord
from pytest_npubench.suites.buckets.kinds.profile import KIND
from pytest_npubench.suites.buckets.variants import bucket_binaries
from pytest_npubench.verdict import VerdictKind

from .conftest import TBT_S, TTFT_S, cases, measured, with_size


def record(name, compile_s=1.0):
    return CompileRecord(name=name, compile_s=compile_s, cache=CacheState.COLD)


def test_the_times_that_the_points_were_made_of_come_out(plan):
    for case in cases(plan, "profile"):
        bucket = case.axis("bucket")
        points = KIND.points(case, plan)
        assert {point.pure_bucket for point in points} == {bucket}
        judgement = KIND.judge(case, plan, measured(points, plan))
        metrics = {metric.name: metric for metric in judgement.metrics}
        assert metrics["ttft_s"].value == pytest.approx(TTFT_S[bucket])
        assert metrics["tbt_s"].value == pytest.approx(TBT_S[bucket])
        assert metrics["ttft_s"].samples == pytest.approx([TTFT_S[bucket]] * 8)
        assert metrics["tbt_s"].samples == pytest.approx([TBT_S[bucket]] * 4)  # one a round, from the rounds' means
        assert metrics["compile_s"].value == pytest.approx(1.0)


def test_the_first_of_two_points_may_have_steps(plan):
    """Of equal steps the same times come out; of those right behind the prefill TTFT has what they take more."""
    plan = with_size(plan, profile_first_output_tokens=4)
    assert plan.settings["profile_first_output_tokens"] == 4
    for case in cases(plan, "profile"):
        bucket, (first, second) = case.axis("bucket"), KIND.points(case, plan)
        assert (first.requests[0].output_tokens, second.requests[0].output_tokens) == (4, 9)
        found = measured((first, second), plan)
        for row in found.rounds:
            row.update({name: tuple(value + 0.0006 for value in row[name]) for name in (first.name, second.name)})
        judgement = KIND.judge(case, plan, found)
        metrics = {metric.name: metric for metric in judgement.metrics}
        assert metrics["tbt_s"].value == pytest.approx(TBT_S[bucket])
        assert metrics["ttft_s"].value == pytest.approx(TTFT_S[bucket] + 0.0003)  # of two prompts each
        assert metrics["ttft_s"].samples == pytest.approx([TTFT_S[bucket] + 0.0003] * 8)


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_a_third_binary_fails(plan, phase):
    case = cases(plan, "profile")[0]
    own = measured(KIND.points(case, plan), plan)
    own.compiles += (record(f"{phase}-m-b2-16"),)
    verdict = KIND.judge(case, plan, own).verdict
    assert verdict.kind is VerdictKind.FAILED
    assert verdict.reason == "binaries 3 > 2"


def test_binaries_belong_to_one_bucket():
    names = ("weights-m", "prefill-m-b2-16", "decode-m-b2-16", "prefill-m-b2-116", "decode-m-b16-32", "move-m-b2-32-16")
    assert [item.name for item in bucket_binaries(map(record, names), 16)] == ["prefill-m-b2-16", "decode-m-b2-16"]
