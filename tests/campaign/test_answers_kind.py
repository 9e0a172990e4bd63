"""The case `answers` of a bucket campaign: checked once before timing, told by the first round, absent where an engine
has none."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pytest_npubench.campaign.answer_visit import AnswerVisit
from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.visits import Round
from pytest_npubench.engines import answer_reference
from pytest_npubench.engines.answers import Answers
from pytest_npubench.engines.probe import ProbePrompts
from pytest_npubench.engines.protocol import Engine
from pytest_npubench.errors import MeasurementError
from pytest_npubench.plugin.campaign_child import _needs_more
from pytest_npubench.suites import case_kind
from pytest_npubench.suites.buckets.bench import BucketBench
from pytest_npubench.suites.buckets.memory import needed_buckets
from pytest_npubench.suites.buckets.plan import BucketPlan, bucket_plans
from pytest_npubench.suites.buckets.points import BucketPoint, seconds_in
from pytest_npubench.verdict import VerdictKind

from .conftest import cases

KIND = case_kind("answers", ("buckets",))


class Right(Engine):
    """Answers what the reference says, and counts how often it is asked; none where `is_mute`."""

    name = "right"

    def __init__(self, plan: BucketPlan, is_mute: bool = False) -> None:
        self.plan, self.is_mute = plan, is_mute
        self.loaded: list[int] = []
        self.num_checks = 0

    def load(self, buckets: Sequence[int]) -> None:
        self.loaded += buckets

    def answers(self, prompts: ProbePrompts) -> Answers | None:
        from pytest_npubench.engines.shapes import dense_shape

        self.num_checks += 1
        if self.is_mute:
            return None
        exact = answer_reference.answer_reference(dense_shape(self.plan.model), "fp32", prompts)
        none = np.full(len(prompts.lengths), np.nan)
        return Answers(
            prompts=prompts, logits=exact.logits, agree={"junk": none * 0 + 0.0, "another row": none}, differ={}
        )


def point_of(plan: BucketPlan) -> BucketPoint:
    (case,) = cases(plan, "answers")
    (point,) = KIND.points(case, plan)
    return point


def loaded(plan: BucketPlan, engine: Engine, earlier: Sequence[Round] = ()) -> tuple[BucketBench, dict[str, str]]:
    bench = BucketBench(SimpleNamespace(), plan, lambda runtime, plan: engine)
    return bench, dict(bench.load([point_of(plan)], earlier, lambda text: None))


def row_of(visit: Any) -> Round:
    return {f"answers/{column}": tuple(values) for column, values in visit.columns().items()}


def test_answers_are_checked_once_and_told_once(plan: BucketPlan) -> None:
    engine, point = Right(plan), point_of(plan)
    bench, failures = loaded(plan, engine)
    assert failures == {}
    assert (engine.num_checks, tuple(engine.loaded)) == (1, plan.buckets)
    assert bench.warm_up(point) == (0.0, True)
    assert bench.visits([point], Measured(), {point.name: 0.0}) == {}
    assert point.visits(0.0) == 1
    row = row_of(bench.sample(point, 0))
    told = Measured(rounds=[row])
    assert bench.visits([point], told, {point.name: 0.0}) == {point.name: 0}
    assert seconds_in(row) == {}, "no chart of seconds shows logits"
    (case,) = cases(plan, "answers")
    judged = KIND.judge(case, plan, told)
    assert judged.verdict.kind is VerdictKind.PASSED
    assert judged.verdict.reason.startswith("answers right")
    assert engine.num_checks == 1
    again = Right(plan)
    _, failures = loaded(plan, again, earlier=[{"step/16": (0.1,)}, row])
    assert (failures, again.num_checks) == ({}, 0)


def test_the_journal_keeps_six_digits(plan: BucketPlan) -> None:
    engine = Right(plan)
    bench, _ = loaded(plan, engine)
    visit = bench.sample(point_of(plan), 0)
    assert isinstance(visit, AnswerVisit)
    assert all(value == float(f"{value:.6g}") for value in visit.logits)


def test_an_engine_that_answers_nothing_is_no_silent_pass(plan: BucketPlan) -> None:
    _, failures = loaded(plan, Right(plan, is_mute=True))
    assert failures == {"answers": "unavailable: right does not answer probe prompts"}
    (case,) = cases(plan, "answers")
    with pytest.raises(MeasurementError, match="does not answer"):
        KIND.judge(case, plan, Measured(failures=failures))


def test_an_engine_in_int8_is_held_against_itself_alone(plan: BucketPlan) -> None:
    quantised = dataclasses.replace(plan, spec=dataclasses.replace(plan.spec, dtype="int8"))
    bench, failures = loaded(quantised, Right(quantised))
    assert failures == {}
    (case,) = cases(quantised, "answers")
    judged = KIND.judge(case, quantised, Measured(rounds=[row_of(bench.sample(point_of(quantised), 0))]))
    assert judged.verdict.kind is VerdictKind.PASSED
    assert judged.verdict.reason.startswith("answers consistent, not compared: there is no reference in int8; ")
    assert {metric.name for metric in judged.metrics} == {"answer_change", "inconsistent_pairs"}


def test_who_has_the_case(plan: BucketPlan) -> None:
    """The reference has it, engines that tell no fixed logits do not; its point is no part of a campaign's digest."""
    plans = {engine: next(bucket_plans(plan.spec, "quick", engine)) for engine in ("reference", "maxtext")}
    has = {engine: own.includes("answers") for engine, own in plans.items()}
    assert has == {"reference": True, "maxtext": False}
    assert point_of(plan).definition is None
    (case,) = cases(plan, "answers")
    assert needed_buckets(case, KIND, plan) == plan.buckets


def test_wrong_answers_do_not_lengthen_a_campaign(plan: BucketPlan) -> None:
    bench, _ = loaded(plan, Right(plan))
    row = dict(row_of(bench.sample(point_of(plan), 0)))
    row["answers/errors"] = (1.0,) * len(row["answers/errors"])
    wrong = Measured(rounds=[row])
    (case,) = cases(plan, "answers")
    assert KIND.judge(case, plan, wrong).verdict.failing
    assert not _needs_more(SimpleNamespace(case=case, kind=KIND, plan=plan), wrong)
