"""The times of a model that answers otherwise than before: faster or slower, but no longer the same work.

Cases of one campaign (one suite, hardware, model and batch size) run one model. Where its answers changed, whatever is
said of their times begins with that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytest_npubench.comparison.observation import Observation
from pytest_npubench.core.case import campaign_of, is_answers
from pytest_npubench.verdict import Verdict, VerdictKind
from pytest_npubench.verdict.observations import Session
from pytest_npubench.verdict.result import OF_ANSWERS, STATISTICAL

Judged = Iterable[tuple[Observation, Verdict]]


def campaigns_with_other_answers(judged: Judged) -> frozenset[str]:
    """Returns the campaigns of which a metric of answers regressed."""
    return frozenset(
        campaign_of(observation.case)
        for observation, verdict in judged
        if is_of_answers(observation) and verdict.kind is VerdictKind.REGRESSED
    )


def is_of_answers(observation: Observation) -> bool:
    return observation.gate in OF_ANSWERS or is_answers(observation.case)


def answer_distances(observation: Observation, sessions: Sequence[Session]) -> list[float]:
    """How far each position of the vector of answers is from that of the newest session; empty where the metric is no
    such vector, or the two cannot be compared."""
    from pytest_npubench.verdict.answers import block_distances

    now = observation.processes[0]
    if observation.gate != "answers" or not sessions or len(sessions[-1][0]) != len(now):
        return []
    return block_distances(now, sessions[-1][0])


def other_answers(observation: Observation, verdict: Verdict, campaigns: frozenset[str]) -> str:
    """What stands before the verdict of a metric whose model answers otherwise; empty for any other."""
    if (
        is_of_answers(observation)
        or observation.gate not in STATISTICAL
        or campaign_of(observation.case) not in campaigns
    ):
        return ""
    better, worse = ("faster", "slower") if observation.unit == "s" else ("better", "worse")
    if verdict.kind is VerdictKind.IMPROVED:
        return f"{better}, but other answers"
    return f"{worse}, and other answers" if verdict.kind is VerdictKind.REGRESSED else "other answers"
