"""Bands of a calibrated simulation over served rounds: held where the machine drifts, and told where they are not."""

import math
from collections import Counter

import numpy as np
import pytest
from campaign.serving.conftest import serving_plan
from scipy.stats import binom

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.served_block import ServedBlock
from pytest_npubench.extensions.planning import simulated
from pytest_npubench.extensions.planning.kinds.simulated_coverage import KIND
from pytest_npubench.extensions.planning.virtual.calibrated import CalibratedCost
from pytest_npubench.extensions.planning.virtual.step_cost import PassWork, StepWork
from pytest_npubench.serving.log import IterationLog
from pytest_npubench.serving.metrics import RequestRecord
from pytest_npubench.suites import case_kind
from pytest_npubench.suites.scheduling import figures
from pytest_npubench.verdict import VerdictKind

NAME = "simulated_coverage"
NUM_MACHINES = 60
FEW = {"policies": ("chunked", "layered"), "num_requests": 6}


def drifting(measured, factors):
    """The same rounds on a machine that is so many times slower in each: all times stretch, arrivals too."""
    rounds = [
        {
            name: tuple(factor * value for value in values) if name.endswith("_s") else values
            for name, values in row.items()
        }
        for row, factor in zip(measured.rounds, factors, strict=True)
    ]
    return Measured(rounds=rounds)


@pytest.fixture
def judged(measure):
    def judge(factors, **changes):
        plan = serving_plan(**{**FEW, **changes})
        _, (case,), measured = measure(plan, NAME, num_rounds=len(factors))
        return KIND.judge(case, plan, drifting(measured, factors))

    return judge


def test_the_band_grows_with_the_drift_between_rounds(judged):
    steady, drifts = (judged(factors, num_requests=10) for factors in ((1.0, 1.0, 1.0, 1.0), (1.0, 1.2, 0.9, 1.1)))
    assert steady.verdict.kind is drifts.verdict.kind is VerdictKind.PASSED
    widths = [{row.figure: row.half_width for row in one.detail.rows} for one in (steady, drifts)]
    for figure, width in widths[1].items():
        assert width > 2 * widths[0][figure]
        assert width > math.log(1.2 / 0.9) / 2
    assert {row.policy for row in drifts.detail.rows} == {"chunked", "layered"}
    assert all(row.num_blocks == 4 for row in drifts.detail.rows)


def test_a_band_that_knows_of_no_drift_fails(judged, monkeypatch):
    """What the case is there for: what calibration alone says is too sure of itself."""
    monkeypatch.setattr(simulated, "half_width", lambda values, coverage, known_sd: np.float64(1.645 * known_sd))
    judgement = judged((1.0, 1.3, 0.8, 1.1, 0.7, 1.2))
    assert judgement.verdict.kind is VerdictKind.FAILED
    assert "mean TPOT of 12 blocks outside the 90% band" in judgement.verdict.reason


def test_of_machines_that_drift_the_band_holds_nine_in_ten(measure, monkeypatch):
    """Each machine's first round from its other three. The three figures of a block are not independent, so each is
    counted by itself. How many runs predict what is measured does not change the band."""
    monkeypatch.setattr(simulated, "NUM_RUNS", 1)
    plan = serving_plan(**FEW)
    _, (case,), measured = measure(plan, NAME, num_rounds=4)
    random, held = np.random.default_rng(0), Counter()
    for _ in range(NUM_MACHINES):
        drifted = drifting(measured, np.exp(random.normal(0.0, 0.15, 4)))
        blocks = {point: figures.blocks(drifted, point) for point in KIND.points(case, plan)}
        others = {point: own[1:] for point, own in blocks.items()}
        calibrated = simulated.CalibratedRounds.of(plan, others)
        (point, own), *_ = blocks.items()
        predicted = calibrated.predicted(plan, point, own[0], 0.9)
        held.update(name for name in simulated.FIGURES if predicted.figure(name).is_covered)
    assert held.keys() == set(simulated.FIGURES)
    for number in held.values():
        assert binom.cdf(number, NUM_MACHINES, 0.9) > 0.01


def test_requests_of_a_steady_machine_are_predicted(judged):
    """Of a virtual one whose cost has another form: experts are read or multiplied, whichever takes longer."""
    judgement = judged((1.0, 1.0, 1.0, 1.0))
    assert judgement.verdict.kind is VerdictKind.PASSED
    detail = judgement.detail
    assert detail.errors.keys() == set(simulated.FIGURES)
    for error in detail.errors.values():
        assert abs(error.mean_error) < 0.05
        assert abs(error.p99_error) < 0.10
    assert all(row.p99_error is not None for row in detail.rows)


@pytest.mark.parametrize(("part", "metric"), [(True, "ttft mean error"), (False, "tpot mean error")])
def test_a_cost_that_is_wrong_fails(judged, monkeypatch, part, metric):
    """Of iterations with prompt tokens, or of those that only decode."""
    real = simulated.Slowed.seconds

    def wrong(cost, work):
        return real(cost, work) * (1.5 if any(one.prefill for one in work.passes) is part else 1.0)

    monkeypatch.setattr(simulated.Slowed, "seconds", wrong)
    monkeypatch.setattr(simulated.CalibratedRounds, "most_misses", lambda *_: 99)
    judgement = judged((1.0, 1.0, 1.0, 1.0))
    assert judgement.verdict.kind is VerdictKind.FAILED
    assert metric in judgement.verdict.reason


def test_an_error_that_the_machine_may_have_made_is_inconclusive(judged, monkeypatch):
    """The same wrong cost, where the rounds' speeds differ by more than what it is wrong by."""
    real = simulated.Slowed.seconds
    monkeypatch.setattr(simulated.Slowed, "seconds", lambda cost, work: 1.12 * real(cost, work))
    monkeypatch.setattr(simulated.CalibratedRounds, "most_misses", lambda *_: 99)
    steady, drifts = judged((1.0, 1.0, 1.0, 1.0)), judged((1.0, 1.5, 0.7, 1.2))
    assert steady.verdict.kind is VerdictKind.FAILED
    assert drifts.verdict.kind is VerdictKind.INCONCLUSIVE
    assert "which 4 rounds tell to" in drifts.verdict.reason


def test_an_error_that_is_not_certain_yet_is_measured_on(measure, monkeypatch):
    """After ROUNDS a case asks for more of them only where its verdict is open, and never where a point failed."""
    plan = serving_plan(**FEW)
    _, (case,), measured = measure(plan, NAME, num_rounds=4)
    six = Measured(rounds=[*measured.rounds, *measured.rounds[:2]])
    assert not KIND.settled(case, plan, measured)
    assert KIND.settled(case, plan, six)
    failures = {point.name: "out of memory" for point in KIND.points(case, plan)}
    assert KIND.settled(case, plan, Measured(rounds=six.rounds, failures=failures))
    real = simulated.Slowed.seconds
    monkeypatch.setattr(simulated.Slowed, "seconds", lambda cost, work: 1.12 * real(cost, work))
    monkeypatch.setattr(simulated.CalibratedRounds, "most_misses", lambda *_: 99)
    drifts = drifting(six, (1.0, 1.5, 0.7, 1.2, 0.8, 1.4))
    judge, judgements = KIND.judge, []
    monkeypatch.setattr(type(KIND), "judge", lambda _, *given: judgements.append(judge(*given)) or judgements[-1])
    assert not KIND.settled(case, plan, drifts)
    assert [judgement.verdict.kind for judgement in judgements] == [VerdictKind.INCONCLUSIVE]


def test_speeds_of_a_policy_are_those_of_all_where_policies_are_alike():
    """However much rounds differ; where one policy is slower in every round, all speeds are moved to its own."""
    rounds = np.array([0.0, 0.3, -0.2, 0.1])
    for column in range(2):
        alike = np.stack([rounds, rounds], axis=1)
        assert simulated.as_of_policy(alike, column) == pytest.approx(alike)
    slower = np.stack([rounds, rounds + 0.1], axis=1)
    for column, offset in enumerate((0.0, 0.1)):
        expected = np.stack([rounds + offset, rounds + offset], axis=1)
        assert simulated.as_of_policy(slower, column) == pytest.approx(expected)


def test_of_policies_that_differ_by_chance_little_is_believed():
    """The mean of many draws: what is believed of differences that are noise is less than half of them."""
    random, seen, believed = np.random.default_rng(0), [], []
    for _ in range(200):
        slow = random.normal(0.0, 0.05, (5, 4))
        seen.append(abs(slow.mean(axis=0)[0] - slow.mean()))
        believed.append(abs(simulated.as_of_policy(slow, 0).mean() - slow.mean()))
    assert np.mean(believed) < 0.5 * np.mean(seen)


def test_the_longest_context_of_each_iteration_by_hand():
    """Prompts of 10 and 4 tokens; the second one's last token comes while the first is at its third."""
    log = IterationLog()
    log.extend({"start_s": [0.0, 1.0, 2.0, 3.0], "end_s": [1.0, 2.0, 3.0, 4.0], "num_decode": [0, 1, 2, 1]})
    records = (
        RequestRecord(arrival_s=0.0, token_times_s=(1.0, 2.0, 3.0), prompt_tokens=10, output_tokens=3),
        RequestRecord(arrival_s=0.0, token_times_s=(2.0, 3.0, 4.0), prompt_tokens=4, output_tokens=3),
    )
    block = ServedBlock(records=records, log=log, ended_s=4.0, rate_per_s=1.0, slo=None)
    assert simulated._longest(block).tolist() == [0, 11, 12, 6]


def test_rows_that_are_padded_read_what_the_longest_reads():
    cost = CalibratedCost(num_layers=2, context_s=1.0)
    work = StepWork([PassWork(0, 2, (), 0)], 3, 60.0, 0.0, 3, longest_context=50)
    slowed = {"cost": cost, "prompt": 9.0, "decode": 2.0}
    seconds = [simulated.Slowed(**slowed, pads_context=pads).seconds(work) for pads in (False, True)]
    assert seconds == [120.0, 300.0]


def test_two_rounds_are_too_few(judged):
    judgement = judged((1.0, 1.1))
    assert judgement.verdict.kind is VerdictKind.INCONCLUSIVE
    assert judgement.verdict.reason == "nothing could be predicted: 2 rounds; want at least 3"


def test_iterations_that_do_not_tell_the_cost_say_nothing(judged, monkeypatch):
    monkeypatch.setattr("pytest_npubench.extensions.planning.virtual.step_prior.LARGEST_UNKNOWN", 0.0)
    judgement = judged((1.0, 1.0, 1.0))
    assert judgement.verdict.kind is VerdictKind.INCONCLUSIVE
    assert "these iterations do not tell" in judgement.verdict.reason


def test_nothing_is_served_that_others_do_not_serve():
    """Of models with experts the points of the policy cases, of dense ones those of the control."""
    for model, other in (("qwen3-30b-a3b", "policy"), ("qwen3-8b", "dense_control")):
        plan = serving_plan(model)
        (case,) = (plan.case("scheduling", NAME, axes) for axes in KIND.axes(plan))
        kind = case_kind(other)
        theirs = {
            point for axes in kind.axes(plan) for point in kind.points(plan.case("scheduling", other, axes), plan)
        }
        own = set(KIND.points(case, plan))
        assert own <= theirs
        assert {point.policy for point in own}.isdisjoint({"static", "disaggregated"})
