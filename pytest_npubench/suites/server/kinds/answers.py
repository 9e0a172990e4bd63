"""Whether a server repeats itself, answers what it is asked, and answers as it did when it was accepted.

A server's model has no reference, so this says "consistent, not compared" until answers are accepted. What a server
does to itself is the measure of what is allowed: answers given beside others differ from those given alone, since other
kernels run. One that does not repeat itself cannot be judged, and is never called right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Axes, Case
from pytest_npubench.engines.answers import root_mean_square
from pytest_npubench.suites.server.asking import ServerAnswers
from pytest_npubench.suites.server.plan import ServerPlan
from pytest_npubench.suites.server.points import AnswerPoint
from pytest_npubench.verdict import Gate, Verdict, VerdictKind, judge_gates
from pytest_npubench.verdict.result import Judgement, Metric

ROOM = 2.0  # times what a server's own answers lie apart
LEAST_ALLOWED = 0.1  # log-probabilities in bf16 move by as much between two stacks
MOST_ALLOWED = 0.5  # above it answers are other ones
SAME = "answers are the same whatever is asked"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAnswersDetail:
    """Distances, root mean square over the prompts, and what is allowed from accepted answers; None: not compared."""

    has_logprobs: bool
    again: float
    at_once: float
    neighbour: float
    allowed: float | None


class AnswersKind:
    name = "answers"
    suite = "server"

    def axes(self, plan: ServerPlan) -> Iterable[Axes]:
        return ((),)

    def points(self, case: Case, plan: ServerPlan) -> tuple[AnswerPoint, ...]:
        return (AnswerPoint(),)

    def settled(self, case: Case, plan: ServerPlan, measured: Measured) -> bool:
        return True

    def judge(self, case: Case, plan: ServerPlan, measured: Measured) -> Judgement:
        (visit,) = measured.visits(AnswerPoint().name, ServerAnswers)[-1]
        apart = max(map(root_mean_square, (visit.again, visit.at_once)))
        most = MOST_ALLOWED if visit.logprobs else 0.0
        allowed = max(LEAST_ALLOWED, ROOM * apart) if ROOM * apart <= most else None
        return Judgement(
            verdict=_verdict(visit, allowed),
            what="answers to fixed prompts" + ("" if visit.logprobs else ", by their text: no log-probabilities"),
            metrics=() if allowed is None else tuple(_metrics(visit, allowed)),
            detail=ServerAnswersDetail(
                has_logprobs=bool(visit.logprobs),
                again=root_mean_square(visit.again),
                at_once=root_mean_square(visit.at_once),
                neighbour=root_mean_square(visit.neighbour),
                allowed=allowed,
            ),
        )


def _verdict(visit: ServerAnswers, allowed: float | None) -> Verdict:
    if not any(visit.neighbour):
        return judge_gates((Gate(metric=SAME, value=1, limit=0),))
    again, at_once = root_mean_square(visit.again), root_mean_square(visit.at_once)
    if allowed is None:
        why = "does not repeat itself" if again >= at_once else "answers otherwise where it is asked for more at once"
        reason = f"not compared: the server {why} ({max(again, at_once):.2g} apart)"
        return Verdict(kind=VerdictKind.INCONCLUSIVE, reason=reason)
    reason = (
        f"consistent, not compared: a server has no reference; asked again {again:.2g}, at once {at_once:.2g} apart"
    )
    return Verdict(kind=VerdictKind.PASSED, reason=reason)


def _metrics(visit: ServerAnswers, allowed: float) -> Iterator[Metric]:
    if visit.logprobs:
        yield Metric(name="answer_change", unit="", value=0.0, samples=visit.logprobs, gate="answers", margin=allowed)
    else:
        yield Metric(name="answer_text", unit="", value=float(visit.text), gate="identical")


KIND = AnswersKind()
