"""Whether the engine still answers as its model does: the one case of a campaign that times nothing.

Before anything is timed, the timed binaries run fixed prompts on weights that every machine makes alike
(engines/probe.py). Limits that rounding sets need no accepted session; with one, later answers are held against it too.
"""

from __future__ import annotations

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Case
from pytest_npubench.suites.buckets.kinds import BucketKind
from pytest_npubench.suites.buckets.plan import BucketPlan
from pytest_npubench.suites.buckets.points import ANSWERS, BucketPoint
from pytest_npubench.verdict.result import Judgement


class AnswersKind(BucketKind):
    name = ANSWERS

    def points(self, case: Case, plan: BucketPlan) -> tuple[BucketPoint, ...]:
        return (BucketPoint(name=ANSWERS, answers=True, beside=True),)

    def judge(self, case: Case, plan: BucketPlan, measured: Measured) -> Judgement:
        from pytest_npubench.campaign.answer_judgement import judge_answers
        from pytest_npubench.campaign.answer_visit import AnswerVisit

        (visit,) = measured.visits(ANSWERS, AnswerVisit)[-1]
        return judge_answers(visit, plan.spec.dtype)


KIND = AnswersKind()
