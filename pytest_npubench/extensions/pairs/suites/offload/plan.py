"""What an offload campaign is about, one experiment on one pair of units, and what the kinds of it have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from pytest_npubench.campaign.plan import DevicePlan
from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.visits import VisitT
from pytest_npubench.core.case import Case
from pytest_npubench.core.hardware import HardwareSpec, size_of
from pytest_npubench.extensions.pairs.offload.chunk_graphs import ChunkSettings
from pytest_npubench.extensions.pairs.offload.factorial import FactorialSettings
from pytest_npubench.extensions.pairs.offload.replay import ReplaySettings
from pytest_npubench.extensions.pairs.offload.shadow import ShadowSettings
from pytest_npubench.extensions.pairs.offload.units import Figures, OffloadPoint
from pytest_npubench.extensions.pairs.paired_rounds import PairExperiment, all_visits, time_metric, whole_rounds
from pytest_npubench.extensions.pairs.suites.offload.spec import OffloadSize, OffloadSpec
from pytest_npubench.verdict.result import Metric

Settings = ChunkSettings | ShadowSettings | ReplaySettings | FactorialSettings

MODEL = "seeded-decoder"
KINDS_OF: Mapping[type[Settings], tuple[str, ...]] = {
    ChunkSettings: ("chunk_sharing",),
    ShadowSettings: ("shadow_outlier",),
    ReplaySettings: ("out_of_order", "contention"),
    FactorialSettings: ("factorial",),
}
"""The kinds of cases that each experiment is measured for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadPlan(DevicePlan):
    """One hardware file, experiment and run size. The decoder is a small seeded one, so there is no model."""

    model: str = MODEL
    offload: OffloadSpec
    size: OffloadSize
    experiment: Settings

    @property
    def key(self) -> str:
        return f"{self.spec.name}-offload-{KINDS_OF[type(self.experiment)][0]}"

    @property
    def framework(self) -> str:
        return "torch"

    @property
    def settings(self) -> Mapping[str, object]:
        return {"pair": self.offload.pair, **asdict(self.experiment)}

    @property
    def limits(self) -> Mapping[str, float]:
        """None of its own: what an experiment must show is part of its kind."""
        return {}

    def includes(self, kind: str) -> bool:
        return kind in self.size.experiments and kind in KINDS_OF[type(self.experiment)]

    @property
    def visits(self) -> tuple[OffloadPoint, ...]:
        """Every point of the experiment."""
        return self.experiment.points()


def offload_plans(spec: HardwareSpec, profile: str) -> Iterator[OffloadPlan]:
    """One for each experiment, where the hardware file offloads in this profile."""
    offload = spec.section(OffloadSpec)
    size = size_of(offload.profiles, profile) if offload else None
    if offload and size:
        for experiment in (settings() for settings in KINDS_OF):
            yield OffloadPlan(spec=spec, offload=offload, size=size, experiment=experiment)


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
