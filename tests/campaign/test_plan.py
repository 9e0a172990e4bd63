"""What a campaign is about: the same on every machine, and another digest for anything else that is measured."""

import subprocess
import sys
from dataclasses import replace
from random import Random

import pytest

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.protocol import campaign_digest
from pytest_npubench.core.measurement import Request
from pytest_npubench.errors import MeasurementError
from pytest_npubench.predictors.two_point import plan_points
from pytest_npubench.suites import suite
from pytest_npubench.suites.buckets.points import BucketPoint

from .conftest import cases, with_size

SHIPPED = """
from pytest_npubench.suites import case_kind, suite
from pytest_npubench.suites.buckets.plan import BucketPlan
from pytest_npubench.campaign.protocol import campaign_digest
from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.suites.hardware_files import load_all

spec = load_all([default_directory()])["cpu"]
plan = BucketPlan(
    spec=spec, size=spec.profile("quick"), model="tiny-llama", batch_size=4, case_error=0.1, mean_error=0.05
)
for name in suite("buckets").kinds:
    kind = suite("buckets").kind(name)
    found = [plan.case(kind.suite, name, axes) for axes in kind.axes(plan)]
    points = [point for case in found for point in kind.points(case, plan)]
    print(campaign_digest(plan, points), *(case.digest(plan.settings) for case in found))
"""


def digests(plan) -> dict[str, str]:
    """Case key -> digest, over all kinds."""
    return {case.key: case.digest(plan.settings) for name in suite("buckets").kinds for case in cases(plan, name)}


def points_of(plan) -> list[BucketPoint]:
    """Of the campaign's own kinds."""
    kinds = [(name, suite("buckets").kind(name)) for name in suite("buckets").kinds if plan.includes(name)]
    return [point for name, kind in kinds for case in cases(plan, name) for point in kind.points(case, plan)]


def test_another_process_finds_the_same_digests():
    """With other hash seeds, so that no order of a set gets in."""
    texts = {
        subprocess.run(
            [sys.executable, "-c", SHIPPED], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    (text,) = texts
    lines = [line.split() for line in text.splitlines()]
    assert len(lines) == len(suite("buckets").kinds)
    found = [digest for _, *own in lines for digest in own]
    assert len(set(found)) == len(found)


@pytest.mark.parametrize(
    "changes",
    [
        {"buckets": (16, 32)},
        {"num_draws": 2},
        {"profile_output_tokens": 8},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_other_measurements_have_other_digests(plan, changes):
    changed = with_size(plan, **changes)
    before, after = digests(plan), digests(changed)
    assert not any(after[key] == before[key] for key in after.keys() & before.keys())
    assert campaign_digest(plan, points_of(plan)) != campaign_digest(changed, points_of(changed))


@pytest.mark.parametrize("field", ["dtype", "tensor_parallel"])
def test_another_dtype_or_group_has_other_digests(plan, field):
    changed = replace(plan, spec=replace(plan.spec, **{field: {"dtype": "bf16", "tensor_parallel": 2}[field]}))
    before, after = digests(plan), digests(changed)
    assert before.keys() == after.keys()
    assert not any(after[key] == before[key] for key in before)
    assert campaign_digest(plan, points_of(plan)) != campaign_digest(changed, points_of(plan))


def test_how_long_a_run_takes_and_how_strict_it_is_change_no_digest(plan):
    changed = with_size(plan, min_rounds=5, max_rounds=50, budget_s=1.0, name="nightly")
    changed = replace(changed, case_error=0.01, mean_error=0.01)
    assert digests(changed) == digests(plan)
    assert campaign_digest(changed, points_of(changed)) == campaign_digest(plan, points_of(plan))


def test_a_campaigns_digest_hangs_on_its_points_and_not_on_their_order(plan):
    points = [point for point in points_of(plan) if point.definition is not None]
    digest = campaign_digest(plan, points)
    shuffled = points[:]
    Random(1).shuffle(shuffled)
    assert campaign_digest(plan, shuffled) == digest
    assert campaign_digest(plan, points[:-1]) != digest
    first, *others = points
    longer = replace(first, requests=(Request(input_tokens=8, output_tokens=1), *first.requests[1:]))
    assert campaign_digest(plan, [longer, *others]) != digest


def test_profile_points_are_planned_over_the_whole_set(plan):
    planned = plan_points((16, 32, 64), output_tokens=9)
    assert plan.profile_points((32,)) == tuple(point for point in planned if point.bucket == 32)
    # 32 - 9 tokens in bucket 32: alone in its set, the bucket would start at 1
    (low, high) = plan.profile_points((32,))
    assert (low.input_tokens, low.output_tokens, high.output_tokens) == (23, 1, 9)
    assert plan.profile_point(high).requests == (Request(input_tokens=23, output_tokens=9),) * 2


def test_moves_lead_into_the_buckets_asked_for(plan):
    assert [point.move for point in plan.moves((16, 32, 64))] == [(16, 32), (32, 64)]
    assert [point.move for point in plan.moves((64,))] == [(32, 64)]
    assert plan.moves((16,)) == ()


def test_draws_are_consecutive_batches_of_one_seeded_sample(plan):
    requests = [item for point in plan.draws("long") for item in point.requests]
    assert tuple(requests) == plan.sample("long").requests
    assert [point.name for point in plan.draws("long")] == [f"batch/long/{index}" for index in range(3)]
    other = replace(plan, batch_size=3)
    assert [item for point in other.draws("long") for item in point.requests][:6] != requests


def test_touched_buckets_are_those_a_batch_walks_through(plan):
    rng = Random(2)
    for _ in range(200):
        pairs = [(rng.randint(1, 40), rng.randint(1, 20)) for _ in range(rng.randint(1, 3))]
        point = BucketPoint(name="p", requests=tuple(Request(input_tokens=i, output_tokens=o) for i, o in pairs))
        lengths = {tokens for i, o in pairs for tokens in range(i, i + max(o, 1))}
        walked = {min(bucket for bucket in plan.buckets if tokens <= bucket) for tokens in lengths}
        # the cache moves through every bucket between the first and the last
        expected = tuple(bucket for bucket in plan.buckets if min(walked) <= bucket <= max(walked))
        assert plan.touched([point]) == expected


def test_samples_of_a_point_come_in_the_order_of_the_rounds():
    own = Measured(rounds=[{"p": (1.0, 3.0)}, {}, {"p": (5.0,)}])
    assert own.samples("p").samples_s == (1.0, 3.0, 5.0)
    assert own.round_means_s("p") == (2.0, 5.0)
    own.failures["p"] = "why"
    for read in (own.samples, own.round_means_s):
        with pytest.raises(MeasurementError, match=r"^why$"):
            read("p")
