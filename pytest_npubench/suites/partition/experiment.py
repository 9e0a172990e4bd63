"""What the experiments on a pair of units have in common: planned rounds, and medians of what they left."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.protocol import CampaignPoint
from pytest_npubench.core.case import Axes, Case
from pytest_npubench.errors import MeasurementError
from pytest_npubench.suites.partition.plan import PartitionPlan
from pytest_npubench.verdict.result import Better, Metric


class PairExperiment:
    """The part of a CaseKind that most experiments share: one case a model."""

    suite = "partition"

    def axes(self, plan: PartitionPlan) -> Iterable[Axes]:
        return ((),)

    def settled(self, case: Case, plan: PartitionPlan, measured: Measured) -> bool:
        """min_rounds are what an experiment was planned with; more tell it nothing that budget is kept for."""
        return True


class OperatorExperiment(PairExperiment):
    """One case for each operator shape of the model."""

    def axes(self, plan: PartitionPlan) -> Iterable[Axes]:
        return tuple((("operator", name),) for name in plan.operator_names)


def rounds_of(measured: Measured, point: CampaignPoint, name: str) -> tuple[float, ...]:
    """The median of each round's visits, so that rounds of two points can be paired. Raises MeasurementError with the
    reason where the point failed, or left no such figure."""
    measured.check(point.name)
    key = f"{point.name}/{name}"
    found = tuple(statistics.median(row[key]) for row in measured.rounds if row.get(key))
    if not found:
        raise MeasurementError(f"{point.name}: no {name} in any round")
    return found


def time_metric(name: str, samples_s: Sequence[float]) -> Metric:
    """The median of times in seconds."""
    return Metric(name=name, unit="s", value=statistics.median(samples_s), samples=tuple(samples_s))


def ratio_metric(name: str, over: Sequence[float], under: Sequence[float], *, better: Better = "higher") -> Metric:
    """The median over rounds of over / under, both of the same round."""
    ratios = tuple(one / other for one, other in zip(over, under, strict=True))
    return Metric(name=name, unit="ratio", value=statistics.median(ratios), better=better, samples=ratios)
