"""TTFT and TBT of a bucket out of its two points."""

import pytest

from pytest_npubench.campaign.campaign import by_name
from pytest_npubench.campaign.protocol import campaign_digest
from pytest_npubench.core.measurement import CacheState, CompileRecord
from pytest_npubench.errors import MeasurementError
from pytest_npubench.suites.buckets.kinds.profile import KIND
from pytest_npubench.suites.buckets.profile_samples import bucket_binaries

from .conftest import MOVE_S, TBT_S, TTFT_S, cases, measured, with_size


def record(name, compile_s=1.0):
    return CompileRecord(name=name, compile_s=compile_s, cache=CacheState.COLD)


def test_the_times_that_the_points_were_made_of_come_out(plan):
    for case in cases(plan, "profile"):
        bucket = case.axis("bucket")
        points = KIND.points(case, plan)
        assert {point.pure_bucket for point in points if not point.move} == {bucket}
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
        bucket, (first, second) = case.axis("bucket"), KIND.points(case, plan)[:2]
        assert (first.requests[0].output_tokens, second.requests[0].output_tokens) == (4, 9)
        found = measured((first, second), plan)
        for row in found.rounds:
            row.update({name: tuple(value + 0.0006 for value in row[name]) for name in (first.name, second.name)})
        judgement = KIND.judge(case, plan, found)
        metrics = {metric.name: metric for metric in judgement.metrics}
        assert metrics["tbt_s"].value == pytest.approx(TBT_S[bucket])
        assert metrics["ttft_s"].value == pytest.approx(TTFT_S[bucket] + 0.0003)  # of two prompts each
        assert metrics["ttft_s"].samples == pytest.approx([TTFT_S[bucket] + 0.0003] * 8)


def test_the_larger_bucket_owns_the_move_into_it(plan):
    """Of the move alone: times of it are no TTFT, and the smallest bucket has none."""
    for case in cases(plan, "profile"):
        judgement = KIND.judge(case, plan, measured(KIND.points(case, plan), plan))
        moves = {metric.name: metric.samples for metric in judgement.metrics if metric.name == "move_s"}
        bucket = case.axis("bucket")
        assert moves == ({} if bucket == 16 else {"move_s": pytest.approx((MOVE_S[bucket],) * len(moves["move_s"]))})


def test_a_campaign_s_digest_is_that_without_the_moves_of_profiles(plan):
    points = [point for case in cases(plan, "profile") for point in KIND.points(case, plan)]
    alone = [point for point in points if not point.move]
    assert campaign_digest(plan, points) == campaign_digest(plan, alone)
    moves = plan.moves(plan.buckets)
    assert by_name([*points, *moves]) == (
        *by_name([*alone[:2]]),
        *by_name([*alone[2:4], moves[0]]),
        *by_name([*alone[4:], moves[1]]),
    )


def test_without_the_smaller_bucket_there_is_no_move_and_a_move_that_fails_alone_is_invalid(plan):
    """The profile of the larger bucket is judged by what it has."""
    case = cases(plan, "profile")[1]
    both = [point for item in cases(plan, "profile")[:2] for point in KIND.points(item, plan)]
    found = measured(both, plan)
    found.failures["move/16/32"] = "the copy broke"
    for row in found.rounds:
        row.pop("move/16/32")
    with pytest.raises(MeasurementError, match="the copy broke"):
        KIND.judge(case, plan, found)
    for row in found.rounds:
        row.pop("profile/16/1")
    assert [metric.name for metric in KIND.judge(case, plan, found).metrics] == ["ttft_s", "tbt_s", "compile_s"]


@pytest.mark.parametrize(("left_out", "expected"), [("", [7e9]), ("profile/16/1", [])])
def test_the_largest_bucket_has_the_campaign_s_peak_of_memory_where_all_ran(plan, left_out, expected):
    points = [point for case in cases(plan, "profile") for point in KIND.points(case, plan)]
    found = measured(points, plan)
    for place, row in enumerate(found.rounds):
        row.pop(left_out, None)
        for name in ("profile/64/1", "profile/64/9"):
            row[f"{name}/peak_bytes"] = (5e9 + place * 2e9 / (len(found.rounds) - 1),) * len(row[name])
    peaks = [
        [metric.value for metric in KIND.judge(case, plan, found).metrics if metric.name == "peak_memory_bytes"]
        for case in cases(plan, "profile")[1:]
    ]
    assert peaks == [[], expected]


def test_binaries_belong_to_one_bucket():
    names = ("weights-m", "prefill-m-b2-16", "decode-m-b2-16", "prefill-m-b2-116", "decode-m-b16-32", "move-m-b2-32-16")
    assert [item.name for item in bucket_binaries(map(record, names), 16)] == ["prefill-m-b2-16", "decode-m-b2-16"]
