"""Active profiling on an engine of known latencies: weights by finite differences, rounds, and bands at the stop."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from pytest_npubench.backends.protocol import Device
from pytest_npubench.campaign.campaign import Campaign, CampaignSite
from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.protocol import Progress
from pytest_npubench.core.measurement import Run
from pytest_npubench.engines.protocol import Engine
from pytest_npubench.predictors.lens import LensPredictor
from pytest_npubench.predictors.two_point import fit
from pytest_npubench.stats.allocation import MIN_REPEATS
from pytest_npubench.suites import case_kind
from pytest_npubench.suites.buckets.active import active_bands, active_visits, is_settled, profile_samples_s
from pytest_npubench.suites.buckets.bench import BucketBench
from pytest_npubench.suites.buckets.plan import _searches, _with_online

from .conftest import cases, seconds

SCATTER = 0.1


class NoisyEngine(Engine):
    """Fake: takes the times of conftest.py times one plus normal noise; nothing runs."""

    name = "noisy"

    def __init__(self, plan, seed):
        self._plan, self._rng = plan, np.random.default_rng(seed)

    def load(self, buckets):
        pass

    def run(self, requests):
        exact_s = seconds(SimpleNamespace(move=None, requests=requests), self._plan.buckets)
        return Run(e2e_s=exact_s * (1 + SCATTER * self._rng.standard_normal()), segments=(), moves=())


class Records(list):
    """A journal in memory."""


@pytest.fixture
def active(plan):
    """Up to 400 rounds without a budget: what stops them is the band."""
    size = replace(plan.size, min_rounds=2, max_rounds=400, budget_s=1e6)
    return replace(plan, size=size, active_band=0.02)


def profile_points(plan):
    return [plan.profile_point(point) for point in plan.profile_points(plan.buckets)]


def measured_by(plan, seed=0):
    """What a campaign of the profile cases measures, and its journal."""
    journal, kind = Records(), case_kind("profile")
    campaign = Campaign(
        plan,
        profile_points(plan),
        site=CampaignSite(
            devices=(Device(family="fake", ordinal=0, name="Fake"),),
            runtime=SimpleNamespace(compiles=[], num_process_compiles=0),
            fingerprint="f",
        ),
        make_bench=lambda runtime: BucketBench(runtime, plan, lambda runtime, plan: NoisyEngine(plan, seed)),
        settled=lambda measured: all(kind.settled(case, plan, measured) for case in cases(plan, "profile")),
        journal=journal,
        earlier=None,
        progress=Progress(),
    )
    return campaign.measured(), journal


def predicted_s(plan, samples, workload):
    """The sum of a workload's batches without moves, from the means of samples."""
    batches = plan.draws(workload)
    points = {point: samples[plan.profile_point(point).name] for point in plan.profile_points(plan.buckets)}
    lens = LensPredictor(fit(points, batch_size=plan.batch_size))
    return sum(
        lens.predict_batch([(one.input_tokens, one.output_tokens) for one in batch.requests], finished="freeze").e2e_s
        for batch in batches
    )


def exact_samples(plan, num=MIN_REPEATS):
    return {point.name: (seconds(point, plan.buckets),) * num for point in profile_points(plan)}


def test_gradients_are_finite_differences_of_the_prediction(active):
    samples = exact_samples(active)
    found = active_bands(active, samples)
    for row, workload in zip(found.gradients, active.size.workloads, strict=True):
        total_s = predicted_s(active, samples, workload)
        for weight, name in zip(row, found.points, strict=True):
            step_s = 1e-5
            moved = {**samples, name: tuple(value + step_s for value in samples[name])}
            expected = (predicted_s(active, moved, workload) - total_s) / step_s / total_s
            assert weight == pytest.approx(expected, rel=1e-6, abs=1e-9), (workload, name)


def test_fixed_repeats_are_left_alone(plan):
    measured = Measured(rounds=[exact_samples(plan)])
    durations_s = {point.name: 0.1 for point in profile_points(plan)}
    assert active_visits(plan, profile_points(plan), measured, durations_s) == {}
    assert "active_band" not in plan.settings
    assert is_settled(plan, Measured())


def test_the_limit_is_part_of_what_a_case_means_and_no_other_campaign_has_it(active):
    assert active.settings["active_band"] == 0.02
    others = [one for one in (*_with_online([active]), *_searches([active])) if one.is_online or one.is_search]
    assert {one.active_band for one in others} <= {None}
    assert [replace(active, active_band=None).settings] == [
        {key: value for key, value in active.settings.items() if key != "active_band"}
    ]


def test_the_first_rounds_visit_every_point_alike(active):
    measured, journal = measured_by(active)
    early = [record["points"] for record in journal if record["record"] == "round"][:2]
    for row in early:
        assert {name: len(values) for name, values in row.items()} == {
            point.name: MIN_REPEATS // 2 for point in profile_points(active)
        }
    assert len(measured.rounds) > 2


def test_a_point_that_was_seen_too_little_is_caught_up(active):
    """With 5 of its repeats missing in rounds before, as where it failed and was measured again."""
    late, *others = [point.name for point in profile_points(active)]
    first = {name: values for name, values in exact_samples(active).items() if name != late}
    measured = Measured(rounds=[first, {late: (0.1,) * 3}])
    durations_s = {point.name: 0.01 for point in profile_points(active)}
    visits = active_visits(active, profile_points(active), measured, durations_s)
    assert visits == {late: MIN_REPEATS // 2, **dict.fromkeys(others, 0)}
    assert not is_settled(active, measured)


def test_it_stops_by_itself_within_the_limit_and_says_what_it_took(active):
    measured, journal = measured_by(active)
    samples = profile_samples_s(active, measured)
    assert is_settled(active, measured)
    assert [record["complete"] for record in journal if record["record"] == "round"][-2:] == [False, True]
    case = cases(active, "profile")[-1]
    kind = case_kind("profile")
    found = kind.judge(case, active, replace(measured, compiles=())).detail.active
    assert found.limit == 0.02
    assert found.half_width == active_bands(active, samples).half_width <= 0.02
    assert found.repeats == {name: len(samples[name]) for name in ("profile/64/1", "profile/64/9")}
    assert found.measured_s == pytest.approx(sum(map(sum, samples.values())))


def test_samples_of_tbt_pair_what_one_round_saw(active):
    """Rounds that visited one of both points alone tell no TBT: (0.18 - 0.10) / 8 and (0.26 - 0.10) / 8."""
    short, long = "profile/64/1", "profile/64/9"
    rounds = [{short: (0.10,), long: (0.18,)}, {long: (0.9,)}, {short: (0.09, 0.11), long: (0.26,)}, {short: (0.1,)}]
    judged = case_kind("profile").judge(cases(active, "profile")[-1], active, Measured(rounds=rounds))
    assert judged.metrics[1].samples == pytest.approx((0.01, 0.02))


def test_points_that_no_workload_rests_on_get_their_least_repeats_alone(active):
    plan = replace(active, size=replace(active.size, workloads=("short",)))
    measured, _ = measured_by(plan)
    nums = {name: len(values) for name, values in profile_samples_s(plan, measured).items()}
    assert nums["profile/64/1"] == nums["profile/64/9"] == MIN_REPEATS
    assert max(nums.values()) > MIN_REPEATS


def test_a_workload_whose_points_failed_does_not_hold_the_others_up(active):
    measured = Measured(rounds=[exact_samples(active)] * 2, failures={"profile/64/9": "gone"})
    found = active_bands(active, profile_samples_s(active, measured))
    assert len(found.gradients) == 1
    measured.failures |= {"profile/16/1": "gone"}
    assert active_bands(active, profile_samples_s(active, measured)) is None
    durations_s = {point.name: 0.1 for point in profile_points(active)}
    left = [point for point in profile_points(active) if point.name not in measured.failures]
    assert active_visits(active, left, measured, durations_s) == {}
    assert is_settled(active, measured)


def test_bands_at_the_stop_hold_the_known_truth(active):
    """90 % bands of two workloads in 60 campaigns: 120 that share points have a standard error of at most 4 %."""
    active = replace(active, active_band=0.03)
    truth_s = [predicted_s(active, exact_samples(active), name) for name in active.size.workloads]
    held = []
    for seed in range(60):
        samples = profile_samples_s(active, measured_by(active, seed)[0])
        for exact_s, workload in zip(truth_s, active.size.workloads, strict=True):
            held.append(abs(predicted_s(active, samples, workload) / exact_s - 1) <= 0.03)
    assert np.mean(held) >= 0.82
