"""What the experiments of the partition suite have in common: medians and ratios of what their rounds left."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.protocol import CampaignPoint
from pytest_npubench.core.case import Axes
from pytest_npubench.errors import MeasurementError
from pytest_npubench.extensions.pairs.paired_rounds import PairExperiment, time_metric
from pytest_npubench.extensions.pairs.suites.partition.plan import PartitionPlan
from pytest_npubench.extensions.pairs.suites.partition.points import SplitVisit
from pytest_npubench.verdict.result import Better, Metric


class PartitionExperiment(PairExperiment[PartitionPlan]):
    suite = "partition"


class OperatorExperiment(PartitionExperiment):
    """One case for each operator shape of the model."""

    def axes(self, plan: PartitionPlan) -> Iterable[Axes]:
        return tuple((("operator", name),) for name in plan.operator_names)


def rounds_of(
    measured: Measured, point: CampaignPoint, figure: Callable[[SplitVisit], float | None]
) -> tuple[float, ...]:
    """Returns the median of a split's figure over each round's visits, so that rounds of two points can be paired.
    Raises MeasurementError with the reason where the point failed, or no visit has that figure."""
    by_round = [
        [value for visit in visits if (value := figure(visit)) is not None]
        for visits in measured.visits(point.name, SplitVisit)
    ]
    medians = tuple(statistics.median(values) for values in by_round if values)
    if not medians:
        raise MeasurementError(f"{point.name}: no visit has the figure that is asked of it")
    return medians


def total_s(measured: Measured, point: CampaignPoint) -> tuple[float, ...]:
    """Returns the whole time of a split, by round. Raises as rounds_of."""
    return rounds_of(measured, point, lambda visit: visit.total_s)


def npu_s(measured: Measured, point: CampaignPoint) -> tuple[float, ...]:
    """Returns the static unit's time for its parts of a split, by round. Raises as rounds_of."""
    return rounds_of(measured, point, lambda visit: visit.npu_s)


def unit_metrics(
    gpu_s: Sequence[float], npu_s: Sequence[float], prefix: str = "", work: str = "alone"
) -> tuple[Metric, Metric]:
    """Each unit's time for work that no decision changes: the operator alone, or fixed parts of it. They stand first in
    a case of both units: where a unit has become slower, the verdict's reason begins with its name."""
    return time_metric(f"{prefix}gpu_{work}_s", gpu_s), time_metric(f"{prefix}npu_{work}_s", npu_s)


def ratio_metric(name: str, over: Sequence[float], under: Sequence[float], *, better: Better = "higher") -> Metric:
    """Returns the median over rounds of over / under, both of the same round."""
    ratios = tuple(one / other for one, other in zip(over, under, strict=True))
    return Metric(name=name, unit="ratio", value=statistics.median(ratios), better=better, samples=ratios)


def check_columns(*columns: Sequence[float]) -> None:
    """Raises ValueError unless all have a value for each place, of one place or more."""
    if not columns[0] or len({len(column) for column in columns}) > 1:
        lengths = ", ".join(str(len(column)) for column in columns)
        raise ValueError(f"columns of {lengths} values; want one length of 1 or more")
