"""What experiments on a pair of compute units share: planned rounds, and figures that are paired round by round.

A resumed campaign tries again what failed before, so its earlier rounds lack that point.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Generic

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.protocol import CampaignPoint, PlanT
from pytest_npubench.campaign.visits import VisitT
from pytest_npubench.core.case import Axes, Case
from pytest_npubench.errors import MeasurementError
from pytest_npubench.verdict.result import Metric


class PairExperiment(Generic[PlanT]):
    """The part of a CaseKind that most experiments on a pair share: one case a plan."""

    def axes(self, plan: PlanT) -> Iterable[Axes]:
        return ((),)

    def settled(self, case: Case, plan: PlanT, measured: Measured) -> bool:
        """min_rounds are what an experiment was planned with; more tell it nothing that budget is kept for."""
        return True


def whole_rounds(measured: Measured, points: Sequence[CampaignPoint]) -> Measured:
    """Returns the rounds that visited every point. Samples are named POINT/FIGURE. Raises MeasurementError with the
    reason where a point failed or no round visited all."""
    for point in points:
        measured.check(point.name)
    names = {point.name for point in points}
    rounds = [row for row in measured.rounds if names <= {key.rpartition("/")[0] for key in row}]
    if not rounds:
        raise MeasurementError(f"no round visited all of {', '.join(sorted(names))}")
    return replace(measured, rounds=rounds)


def all_visits(measured: Measured, point: CampaignPoint, of: type[VisitT]) -> tuple[VisitT, ...]:
    """Returns the visits of all rounds, in their order. Raises as Measured.visits."""
    return tuple(visit for visits in measured.visits(point.name, of) for visit in visits)


def time_metric(name: str, samples_s: Sequence[float]) -> Metric:
    """Returns the median of times in seconds, to be held against accepted sessions."""
    return Metric(name=name, unit="s", value=statistics.median(samples_s), samples=tuple(samples_s))
