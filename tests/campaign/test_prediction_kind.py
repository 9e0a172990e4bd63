"""LENS against the measured batches: exact where the device is, its interval against a simulation, padding counted."""

from collections import Counter
from dataclasses import replace
from itertools import product
from statistics import fmean

import numpy as np
import pytest

from pytest_npubench.campaign.points import Measured
from pytest_npubench.predictors import lens, two_point
from pytest_npubench.predictors.lens import LensPredictor
from pytest_npubench.stats.error import student_quantile
from pytest_npubench.suites.buckets.kinds.band_coverage import KIND as BAND_COVERAGE
from pytest_npubench.suites.buckets.kinds.mean_error import KIND as MEAN_ERROR
from pytest_npubench.suites.buckets.kinds.prediction import KIND, padding_fractions, prediction_error
from pytest_npubench.verdict import VerdictKind
from pytest_npubench.workloads import workload

from .conftest import cases, measured, noisy, of_workload, seconds, slowed, with_size


@pytest.mark.parametrize("name", ["short", "long"])
def test_a_device_that_keeps_to_its_buckets_is_predicted_exactly(plan, name):
    case = of_workload(plan, name)
    own = measured(KIND.points(case, plan), plan)
    found = prediction_error(plan, own, name)
    expected = [seconds(point, plan.buckets) for point in plan.draws(name)]
    assert found.measured_s == pytest.approx(expected)
    assert found.predicted_s == pytest.approx(expected)
    assert found.error.gate_value == pytest.approx(0.0, abs=1e-12)
    assert found.half_width == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("factor", [1.05, 0.8])
def test_the_error_is_relative_to_what_was_measured_and_signed(plan, factor):
    case = of_workload(plan, "long")
    own = slowed(measured(KIND.points(case, plan), plan), "batch/", factor)
    judgement = KIND.judge(case, plan, own)
    assert judgement.error == pytest.approx(1 / factor - 1)
    within = abs(1 / factor - 1) <= plan.case_error
    assert judgement.verdict.kind is (VerdictKind.PASSED if within else VerdictKind.FAILED)
    assert judgement.error_interval == pytest.approx((judgement.error, judgement.error), abs=1e-9)


def with_counts(own: Measured, batches, plan) -> Measured:
    """With what an engine counts of each batch, walked step by step; rows that ended stay at their length."""
    counted = {}
    for batch in batches:
        longest = max(item.output_tokens for item in batch.requests)
        lengths = [("prefill", item.input_tokens) for item in batch.requests] + [
            ("decode", max(item.input_tokens + min(step, item.output_tokens - 1) for item in batch.requests))
            for step in range(1, longest)
        ]
        ran = Counter(f"{phase}-{min(b for b in plan.buckets if tokens <= b)}" for phase, tokens in lengths)
        counted |= {f"{batch.name}/ran/{name}": (float(number),) for name, number in ran.items()}
    first, *others = own.rounds
    return replace(own, rounds=[{**first, **counted}, *others])


def steps_are_tokens(monkeypatch):
    """T = l_out for l_out - 1, in what is predicted and in what is fitted."""
    checked, estimate = LensPredictor._checked, two_point._estimate
    monkeypatch.setattr(
        LensPredictor, "_checked", lambda lens, *lengths: (checked(lens, *lengths)[0], checked(lens, *lengths)[1] + 1)
    )
    monkeypatch.setattr(two_point, "_estimate", lambda point, *rest: estimate(point, *rest[:1], True))


def fitted_with_a_step_more(monkeypatch):
    estimate = two_point._estimate
    monkeypatch.setattr(two_point, "_estimate", lambda point, *rest: estimate(point, *rest[:1], True))


def tenth_more_steps(monkeypatch):
    padded_steps = lens.padded_steps
    more = lambda *arguments: {bucket: 1.1 * num for bucket, num in padded_steps(*arguments).items()}  # noqa: E731
    monkeypatch.setattr(lens, "padded_steps", more)


def all_steps_in_the_largest_bucket(monkeypatch):
    padded_steps = lens.padded_steps

    def moved(*arguments):
        found = padded_steps(*arguments)
        return {**dict.fromkeys(found, 0.0), max(found): sum(found.values())}

    monkeypatch.setattr(lens, "padded_steps", moved)


COUNTS, BACK = "prefills and steps that LENS counts", "profile points that LENS does not give back"


@pytest.mark.parametrize(
    ("fault", "reasons"),
    [
        (steps_are_tokens, [COUNTS]),
        (fitted_with_a_step_more, [BACK]),
        (tenth_more_steps, [COUNTS, BACK]),
        (all_steps_in_the_largest_bucket, [COUNTS, BACK]),
    ],
)
def test_wrong_arithmetic_fails_however_little_is_known_of_the_error(plan, monkeypatch, fault, reasons):
    """Rounds that scatter by half, so that the error by itself fails nothing."""
    case = of_workload(plan, "long")
    own = noisy(KIND.points(case, plan), plan, np.random.default_rng(2), 5, noise=0.5)
    own = with_counts(own, plan.draws("long"), plan)
    assert not KIND.judge(case, plan, own).verdict.failing
    fault(monkeypatch)
    verdict = KIND.judge(case, plan, own).verdict
    assert verdict.kind is VerdictKind.FAILED
    assert [reason for reason in (COUNTS, BACK) if reason in verdict.reason] == reasons


def test_the_mean_error_of_wrong_arithmetic_enters_no_baseline_either(plan, monkeypatch):
    (mean,) = cases(plan, "mean_error")
    points = MEAN_ERROR.points(mean, plan)
    drawn = [batch for workload in plan.size.workloads for batch in plan.draws(workload)]
    own = with_counts(noisy(points, plan, np.random.default_rng(2), 5, noise=0.2), drawn, plan)
    assert not MEAN_ERROR.judge(mean, plan, own).verdict.failing
    steps_are_tokens(monkeypatch)
    verdict = MEAN_ERROR.judge(mean, plan, own).verdict
    assert verdict.kind is VerdictKind.FAILED
    assert COUNTS in verdict.reason


def test_an_engine_that_leaves_half_of_the_steps_out_is_not_what_lens_counts(plan):
    case = of_workload(plan, "long")
    own = with_counts(measured(KIND.points(case, plan), plan), plan.draws("long"), plan)
    assert KIND.judge(case, plan, own).verdict.kind is VerdictKind.PASSED
    steps = [name for name in own.rounds[0] if "/ran/decode-64" in name]
    own.rounds[1] |= {name: tuple(value // 2 for value in own.rounds[0][name]) for name in steps}
    assert COUNTS in KIND.judge(case, plan, own).verdict.reason


def test_an_error_that_is_not_known_well_enough_is_inconclusive_and_not_settled(plan):
    """Off by 12 % where 10 % are allowed: of rounds that scatter it is not known, of steady ones it fails."""
    case, (mean,) = of_workload(plan, "long"), cases(plan, "mean_error")
    points = MEAN_ERROR.points(mean, plan)
    for noise, kind in ((0.3, VerdictKind.INCONCLUSIVE), (0.002, VerdictKind.FAILED)):
        own = slowed(noisy(points, plan, np.random.default_rng(4), 5, noise=noise), "batch/", 1 / 1.12)
        for judged_case, judged_kind in ((case, KIND), (mean, MEAN_ERROR)):
            assert judged_kind.judge(judged_case, plan, own).verdict.kind is kind
            assert judged_kind.settled(judged_case, plan, own) is (kind is VerdictKind.FAILED)


def test_errors_that_cancel_in_the_sum_still_count(plan):
    case = of_workload(plan, "long")
    own = measured(KIND.points(case, plan), plan)
    own = slowed(slowed(own, "batch/long/0", 1.3), "batch/long/1", 0.7)
    judgement = KIND.judge(case, plan, own)
    each = [abs(1 / 1.3 - 1), abs(1 / 0.7 - 1), 0.0]
    assert judgement.detail.mape == pytest.approx(fmean(each))
    assert judgement.detail.gate_error == pytest.approx(max(fmean(each), abs(judgement.error)))
    assert judgement.verdict.kind is VerdictKind.FAILED


def test_a_profile_is_measured_of_the_buckets_that_batches_run_through_and_no_other(plan):
    names = {point.name for point in KIND.points(of_workload(plan, "short"), plan)}
    lengths = [item for point in plan.draws("short") for item in point.requests]
    largest = max(item.input_tokens + item.output_tokens - 1 for item in lengths)
    assert largest <= 32  # the workload's own: bucket 64 is of no use to it
    assert not any("64" in name for name in names)
    assert "move/16/32" in names or largest <= 16


def test_one_or_two_rounds_have_no_interval(plan):
    case = of_workload(plan, "short")
    for num_rounds in (1, 2):
        own = measured(KIND.points(case, plan), plan, num_rounds)
        assert prediction_error(plan, own, "short").half_width is None
        assert KIND.judge(case, plan, own).error_interval is None
        assert KIND.settled(case, plan, own) is False


@pytest.mark.parametrize("drift", [pytest.param(0.0, marks=pytest.mark.soak), 0.1])
def test_the_interval_covers_the_true_error_as_often_as_it_says(plan, drift):
    """150 campaigns of 6 rounds. The true error is 0; 95 % +- 4 standard errors of 1.8 % is 0.88 to 1."""
    rng = np.random.default_rng(3)
    points = KIND.points(of_workload(plan, "long"), plan)
    errors, halves = [], []
    for _ in range(150):
        found = prediction_error(plan, noisy(points, plan, rng, 6, drift=drift), "long")
        errors.append(found.error.sum_error)
        halves.append(found.half_width)
    covered = fmean(abs(error) <= half for error, half in zip(errors, halves, strict=True))
    assert covered >= 0.88
    # nor is it wide for nothing: on average what the spread of the errors themselves asks for
    needed = float(student_quantile(0.975, 5)) * float(np.std(errors))
    assert 0.75 < fmean(halves) / needed < 1.3


def test_the_interval_of_the_mean_error_covers_it(plan):
    """60 campaigns of 6 rounds; batches of one workload 10 % slower and of the other 10 % faster, so that absolute
    errors keep their sign. 95 % - 4 standard errors of 2.8 % is 0.84."""
    rng = np.random.default_rng(8)
    (case,) = cases(plan, "mean_error")
    points, true, held = MEAN_ERROR.points(case, plan), fmean([1 - 1 / 1.1, 1 / 0.9 - 1]), []
    for _ in range(60):
        own = slowed(noisy(points, plan, rng, 6, drift=0.1), "batch/short", 1.1)
        low, high = MEAN_ERROR.judge(case, plan, slowed(own, "batch/long", 0.9)).error_interval
        held.append(low <= true <= high)
    assert fmean(held) >= 0.84


def test_noise_alone_fails_nothing(plan):
    """30 campaigns of 24 batches whose visits scatter by 25 %, of a device that keeps to its buckets: their absolute
    errors are 8 % on average, and none of that is LENS's."""
    rng, many = np.random.default_rng(9), with_size(plan, num_draws=12)
    (case,) = cases(many, "mean_error")
    points = MEAN_ERROR.points(case, many)
    found = [MEAN_ERROR.judge(case, many, noisy(points, many, rng, 6, noise=0.25)) for _ in range(30)]
    assert fmean(one.error for one in found) > plan.mean_error
    assert sum(one.verdict.failing for one in found) <= 1


def test_settled_once_the_interval_is_narrow(plan):
    rng = np.random.default_rng(5)
    case = of_workload(plan, "long")
    points = KIND.points(case, plan)
    assert KIND.settled(case, plan, noisy(points, plan, rng, 12)) is False
    assert KIND.settled(case, plan, noisy(points, plan, rng, 12, noise=0.003)) is True


@pytest.mark.parametrize("name", ["short", "long"])
def test_padding_is_what_counting_each_position_gives(plan, name):
    requests = workload(name).sample(200, seed=0, max_total_tokens=64).requests
    bucket_of = {tokens: min(b for b in plan.buckets if tokens <= b) for tokens in range(1, 65)}
    prefilled = sum(bucket_of[item.input_tokens] for item in requests)
    true = sum(item.input_tokens for item in requests)
    steps = [item.input_tokens + step + 1 for item in requests for step in range(item.output_tokens - 1)]
    found = padding_fractions(plan, name, 200)
    assert found == pytest.approx((1 - true / prefilled, 1 - sum(steps) / sum(bucket_of[tokens] for tokens in steps)))
    assert all(0 < fraction < 1 for fraction in found)


def test_the_mean_error_is_over_workloads_and_without_their_signs(plan):
    (case,) = cases(plan, "mean_error")
    own = measured(MEAN_ERROR.points(case, plan), plan)
    own = slowed(slowed(own, "batch/short", 1.02), "batch/long", 0.96)
    judgement = MEAN_ERROR.judge(case, plan, own)
    assert judgement.error == pytest.approx(fmean([1 - 1 / 1.02, 1 / 0.96 - 1]))
    assert judgement.verdict.kind is VerdictKind.PASSED
    worse = slowed(own, "batch/long", 0.9)
    assert MEAN_ERROR.judge(case, plan, worse).verdict.kind is VerdictKind.FAILED


def test_the_mean_error_needs_the_points_of_every_workload(plan):
    (case,) = cases(plan, "mean_error")
    needed = {point for name in plan.size.workloads for point in KIND.points(of_workload(plan, name), plan)}
    assert set(MEAN_ERROR.points(case, plan)) == needed


def test_more_draws_are_more_batches(plan):
    for num_draws, name in product((1, 5), ("short", "long")):
        larger = with_size(plan, num_draws=num_draws)
        batches = larger.draws(name)
        assert len(batches) == num_draws
        assert all(len(point.requests) == 2 for point in batches)
        own = measured(KIND.points(of_workload(larger, name), larger), larger)
        assert prediction_error(larger, own, name).error.mape == pytest.approx(0.0, abs=1e-12)


def coverage_of(plan, own):
    (case,) = cases(plan, "band_coverage")
    return BAND_COVERAGE.judge(case, plan, own)


def test_the_band_covers_where_the_device_keeps_to_its_buckets_and_fails_where_it_does_not(plan):
    """Known staircase times with noise: the band holds. Batches of 10 % more, which no repeat explains: it fails."""
    many = with_size(plan, num_draws=12)
    points = BAND_COVERAGE.points(cases(many, "band_coverage")[0], many)
    own = noisy(points, many, np.random.default_rng(7), 8, noise=0.02)
    held = coverage_of(many, own)
    assert held.verdict.kind is VerdictKind.PASSED
    assert (held.detail.num_batches, held.detail.coverage) == (24, 0.9)
    assert 24 - held.detail.num_covered <= held.detail.most_misses < 24
    off = coverage_of(many, slowed(own, "batch/", 1.1))
    assert off.verdict.kind is VerdictKind.FAILED
    assert "outside the 90% band" in off.verdict.reason


def test_without_noise_the_band_is_a_line_and_holds_all(plan):
    many = with_size(plan, num_draws=6)
    (case,) = cases(many, "band_coverage")
    held = coverage_of(many, measured(BAND_COVERAGE.points(case, many), many))
    assert (held.detail.num_covered, held.detail.most_misses) == (12, 0)


def test_few_batches_have_no_case_of_coverage(plan):
    assert not plan.includes("band_coverage")
    assert with_size(plan, num_draws=6).includes("band_coverage")
