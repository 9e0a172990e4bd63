"""What the offload experiments have in common: one case, the points of its experiment, rows for the report."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Axes, Case
from pytest_npubench.offload.summaries import ArmRow, Samples
from pytest_npubench.suites.offload.plan import OffloadPlan
from pytest_npubench.suites.offload.points import VisitPoint
from pytest_npubench.verdict.result import Metric


class OffloadExperiment:
    """The part of a CaseKind that the experiments share."""

    suite = "offload"

    def axes(self, plan: OffloadPlan) -> Iterable[Axes]:
        return ((),)

    def points(self, case: Case, plan: OffloadPlan) -> tuple[VisitPoint, ...]:
        return tuple(VisitPoint(point=point) for point in plan.visits)

    def settled(self, case: Case, plan: OffloadPlan, measured: Measured) -> bool:
        """min_rounds are what an experiment was planned with; more tell it nothing that budget is kept for."""
        return True


def arm_rows(rows: Sequence[ArmRow]) -> list[dict[str, object]]:
    """As plain data for the report: the arm, its setting, medians by metric, its ratio with the interval."""
    return [
        {
            "arm": row.arm,
            "setting": row.setting,
            **row.medians,
            "over": row.over.median if row.over else None,
            "over_interval": [row.over.low, row.over.high] if row.over else None,
        }
        for row in rows
    ]


def arm_time(name: str, samples: Samples, point: str) -> Metric:
    """The seconds of one arm, to be held against accepted sessions."""
    found = samples[point]["total_s"]
    return Metric(name=name, unit="s", value=statistics.median(found), samples=tuple(found))
