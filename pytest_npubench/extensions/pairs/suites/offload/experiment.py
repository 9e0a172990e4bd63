"""What the offload experiments have in common: the points of their campaign, and what rounds left of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.visits import VisitT
from pytest_npubench.core.case import Case
from pytest_npubench.extensions.pairs.offload.units import Figures, OffloadPoint
from pytest_npubench.extensions.pairs.paired_rounds import PairExperiment, all_visits, time_metric, whole_rounds
from pytest_npubench.extensions.pairs.suites.offload.plan import OffloadPlan
from pytest_npubench.verdict.result import Metric


class OffloadExperiment(PairExperiment[OffloadPlan]):
    suite = "offload"

    def points(self, case: Case, plan: OffloadPlan) -> tuple[OffloadPoint, ...]:
        return plan.visits


def visits_of(measured: Measured, points: Sequence[OffloadPoint], of: type[VisitT]) -> dict[str, tuple[VisitT, ...]]:
    """One record by point and round that visited all points. Raises MeasurementError with the reason where a point
    failed, and where there is no such round."""
    whole = whole_rounds(measured, points)
    return {point.name: all_visits(whole, point, of) for point in points}


def arm_time(name: str, visits: Mapping[str, Sequence[Figures]], point: str) -> Metric:
    """Returns the seconds of one arm, to be held against accepted sessions."""
    return time_metric(name, [visit.total_s for visit in visits[point]])
