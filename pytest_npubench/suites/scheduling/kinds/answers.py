"""The engine answers what a float64 decoder answers, and the same under every policy, in any dtype.

identical_tokens holds greedy tokens against each other, which says nothing in bf16; here logits of probe prompts are
compared (asking.py), whose distance has a size that rounding explains or does not. Nothing arrives, so there is one
case for a model, whatever its loads.
"""

from __future__ import annotations

from collections.abc import Iterable

from pytest_npubench.campaign.answer_judgement import judge_answers
from pytest_npubench.campaign.answer_visit import AnswerVisit
from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Axes, Case
from pytest_npubench.suites.scheduling.experiment import LoadExperiment
from pytest_npubench.suites.scheduling.plan import ServingPlan
from pytest_npubench.suites.scheduling.points import AnswerPoint
from pytest_npubench.verdict.result import Judgement


class AnswersKind(LoadExperiment):
    name = "answers"

    def axes(self, plan: ServingPlan) -> Iterable[Axes]:
        return ((),) if plan.traits.tells_answers else ()

    def points(self, case: Case, plan: ServingPlan) -> tuple[AnswerPoint, ...]:
        return (AnswerPoint(),)

    def judge(self, case: Case, plan: ServingPlan, measured: Measured) -> Judgement:
        (visit,) = measured.visits(AnswerPoint().name, AnswerVisit)[-1]
        return judge_answers(visit, plan.serving.dtype, has_experts=not plan.shape.is_dense)


KIND = AnswersKind()
