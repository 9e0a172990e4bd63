"""Rivals of LENS: fitted on the same rounds, shown nothing that they are judged on, and no matter of the case."""

from dataclasses import replace
from statistics import fmean

import numpy as np
import pytest

from pytest_npubench.errors import MeasurementError
from pytest_npubench.predictors import predictor
from pytest_npubench.predictors.protocol import Predictor
from pytest_npubench.suites.buckets.kinds.mean_error import KIND as MEAN_ERROR
from pytest_npubench.suites.buckets.kinds.prediction import KIND, RivalDetail

from .conftest import cases, measured, of_workload, seconds, slowed


def beside(plan, own, name="long"):
    """What the judgement says of rivals, and all else that it says."""
    judgement = KIND.judge(of_workload(plan, name), plan, own)
    return judgement.detail.predictors, replace(judgement, detail=replace(judgement.detail, predictors={}))


def test_a_rival_is_fitted_on_the_same_rounds_and_changes_nothing_for_the_case(plan):
    """The line over the profile points of the three buckets, by numpy's own polynomial fit in two variables."""
    asked = replace(plan, rivals=("linear",))
    own = measured(KIND.points(of_workload(plan, "long"), plan), plan)
    none, alone = beside(plan, own)
    found, same = beside(asked, own)
    assert none == {}
    assert same == alone
    assert (asked.key, asked.settings, asked.limits) == (plan.key, plan.settings, plan.limits)
    profiled = [plan.profile_point(point) for point in plan.profile_points(plan.buckets)]
    terms = [
        (1.0, sum(item.input_tokens for item in point.requests), point.requests[0].output_tokens) for point in profiled
    ]
    line = np.linalg.pinv(terms) @ [seconds(point, plan.buckets) for point in profiled]
    drawn = plan.draws("long")
    lengths = [[(item.input_tokens, item.output_tokens) for item in batch.requests] for batch in drawn]
    expected = [
        line @ (1, sum(inputs), max(outputs)) for inputs, outputs in (zip(*batch, strict=True) for batch in lengths)
    ]
    truth = [seconds(batch, plan.buckets) for batch in drawn]
    assert found["linear"].predicted_s == pytest.approx(expected)
    assert found["linear"].error == pytest.approx(sum(expected) / sum(truth) - 1)
    assert found["linear"].gate_error > 0.01, "a line is no stair"
    assert found["linear"].cost.points == 6


class Peeking(Predictor):
    """A FAKE rival that keeps all it is given."""

    name = "peeking"
    about = "a FAKE"

    def __init__(self):
        self.given = []

    def fit(self, samples):
        self.given.append(samples)
        return self

    def predict(self, batch):
        self.given.append(batch)
        return 1.0


def test_a_predictor_never_sees_what_it_is_judged_on(plan, monkeypatch):
    """Batches that take longer change what is measured, and nothing that a rival is given."""
    peeking = Peeking()
    monkeypatch.setattr("pytest_npubench.suites.buckets.kinds.prediction.predictor", lambda name: peeking)
    asked, given = replace(plan, rivals=("peeking",)), []
    own = measured(KIND.points(of_workload(plan, "long"), plan), plan)
    for factor in (1.0, 3.0):
        found, _ = beside(asked, slowed(own, "batch/", factor))
        given.append(peeking.given)
        peeking.given = []
        assert found["peeking"].error == pytest.approx(
            3 / sum(seconds(b, plan.buckets) for b in plan.draws("long")) / factor - 1
        )
    assert given[0] == given[1]


class Broken(Predictor):
    """A FAKE rival that raises what no predictor of ours would, or tells no number."""

    name = "broken"

    def __init__(self, outcome):
        self.outcome = outcome

    def fit(self, samples):
        return self

    def predict(self, batch):
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (ZeroDivisionError("by nought"), "ZeroDivisionError: by nought"),
        (float("nan"), "predicted_s: value 0 of 3 is nan; want a finite number"),
        (MeasurementError("too short"), "too short"),
    ],
    ids=["bug", "nan", "named"],
)
def test_a_rival_that_fails_says_why_and_the_case_is_judged(plan, monkeypatch, outcome, reason):
    monkeypatch.setattr(
        "pytest_npubench.suites.buckets.kinds.prediction.predictor",
        lambda name: Broken(outcome) if name == "broken" else predictor(name),
    )
    own = measured(KIND.points(of_workload(plan, "long"), plan), plan)
    found, same = beside(replace(plan, rivals=("broken",)), own)
    assert found == {"broken": RivalDetail(reason=reason)}
    assert same == beside(plan, own)[1]


def test_the_mean_error_of_a_rival_stands_beside_lens(plan):
    asked = replace(plan, rivals=("linear", "nobody"))
    (case,) = cases(asked, "mean_error")
    own = measured(MEAN_ERROR.points(case, asked), asked)
    judgement = MEAN_ERROR.judge(case, asked, own)
    each = [KIND.judge(one, asked, own).detail.predictors["linear"].gate_error for one in cases(asked, "prediction")]
    assert judgement.detail.predictors["linear"].mean == pytest.approx(fmean(each))
    assert "no predictor 'nobody'" in judgement.detail.predictors["nobody"].reason
    assert replace(judgement, detail=replace(judgement.detail, predictors={})) == MEAN_ERROR.judge(case, plan, own)
