"""What the experiments of the partition suite have in common: medians and ratios of what their rounds left."""

from __future__ import annotations

import statistics
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.protocol import CampaignPoint
from pytest_npubench.core.case import Axes, Case
from pytest_npubench.errors import MeasurementError
from pytest_npubench.extensions.pairs.paired_rounds import PairExperiment, time_metric, whole_rounds
from pytest_npubench.extensions.pairs.partition.descriptors import fit_ratio
from pytest_npubench.extensions.pairs.partition.matmul import GPU, NPU, Matmul, alone
from pytest_npubench.extensions.pairs.suites.partition.plan import PartitionPlan
from pytest_npubench.extensions.pairs.suites.partition.points import SplitPoint, SplitVisit
from pytest_npubench.verdict import judge_gates
from pytest_npubench.verdict.result import Better, Judgement, Metric


class PartitionExperiment(PairExperiment[PartitionPlan]):
    suite = "partition"


class OperatorExperiment(PartitionExperiment):
    """One case for each operator shape of the model."""

    def axes(self, plan: PartitionPlan) -> Iterable[Axes]:
        return tuple((("operator", name),) for name in plan.operator_names)


class SizeExperiment(OperatorExperiment):
    """An operator alone on one unit at growing numbers of tokens: the medians by number are what its detail fits.

    unit: the unit that runs it. tokens: the numbers.
    """

    unit: str
    tokens: tuple[int, ...]

    @abstractmethod
    def detail(self, matmuls: Sequence[Matmul], seconds: tuple[float, ...]) -> object: ...

    def points(self, case: Case, plan: PartitionPlan) -> tuple[SplitPoint, ...]:
        matmuls = (plan.matmul(str(case.axis("operator")), tokens) for tokens in self.tokens)
        return tuple(SplitPoint(matmul=matmul, split=alone(matmul, self.unit)) for matmul in matmuls)

    def judge(self, case: Case, plan: PartitionPlan, measured: Measured) -> Judgement:
        matmuls = [point.matmul for point in self.points(case, plan)]
        seconds = [unit_s(measured, point, self.unit) for point in self.points(case, plan)]
        medians = tuple(map(statistics.median, seconds))
        return Judgement(
            verdict=judge_gates(()),
            what=f"{matmuls[-1].name} on the {self.unit.upper()} role, {self.tokens[-1]} tokens",
            metrics=(time_metric("smallest_s", seconds[0]), time_metric("largest_s", seconds[-1])),
            measured_s=medians[-1],
            detail=self.detail(matmuls, medians),
        )


class ShapeExperiment(OperatorExperiment):
    """An operator in two shapes of equal FLOP on the static unit: the seconds of the second over those of the first.

    ratio: the name of the figure. sides: the shapes' names. detail: the record of both by those names. An operator
    whose two shapes are one has no case.
    """

    ratio: str
    sides: tuple[str, str]
    detail: type[Any]

    @abstractmethod
    def shapes(self, matmul: Matmul) -> tuple[Matmul, Matmul]: ...

    @abstractmethod
    def what(self, first: Matmul) -> str: ...

    def axes(self, plan: PartitionPlan) -> Iterable[Axes]:
        shapes = {name: self._shapes(plan, name) for name in plan.operator_names}
        differing = (
            name for name, pair in shapes.items() if len({(one.rows, one.cols, one.tokens) for one in pair}) > 1
        )
        return tuple((("operator", name),) for name in differing)

    def points(self, case: Case, plan: PartitionPlan) -> tuple[SplitPoint, ...]:
        matmuls = self._shapes(plan, str(case.axis("operator")))
        return tuple(SplitPoint(matmul=matmul, split=alone(matmul, NPU)) for matmul in matmuls)

    def judge(self, case: Case, plan: PartitionPlan, measured: Measured) -> Judgement:
        points = self.points(case, plan)
        measured = whole_rounds(measured, points)
        seconds = {f"{side}_s": unit_s(measured, point, NPU) for side, point in zip(self.sides, points, strict=True)}
        (first, first_s), (_, second_s) = seconds.items()
        ratio = ratio_metric(self.ratio, second_s, first_s)
        interval = fit_ratio(second_s, first_s).interval
        return Judgement(
            verdict=judge_gates(()),
            what=self.what(points[0].matmul),
            metrics=(ratio, time_metric(first, first_s)),
            detail=self.detail(**{self.ratio: ratio.value, f"{self.ratio}_interval": interval, **seconds}),
        )

    def _shapes(self, plan: PartitionPlan, operator: str) -> tuple[Matmul, Matmul]:
        return self.shapes(plan.matmul(operator, plan.partition.standard_sizes[-1]))


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


def unit_s(measured: Measured, point: CampaignPoint, unit: str) -> tuple[float, ...]:
    """Returns a unit's time for its parts of a split, by round. Raises as rounds_of."""
    return rounds_of(measured, point, lambda visit: visit.gpu_s if unit == GPU else visit.npu_s)


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
