"""What an offload campaign is about: one experiment's settings on one pair of units."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from pytest_npubench.campaign.plan import DevicePlan
from pytest_npubench.core.hardware import HardwareSpec, size_of
from pytest_npubench.extensions.pairs.offload.chunk_graphs import ChunkSettings
from pytest_npubench.extensions.pairs.offload.factorial import FactorialSettings
from pytest_npubench.extensions.pairs.offload.replay import ReplaySettings
from pytest_npubench.extensions.pairs.offload.shadow import ShadowSettings
from pytest_npubench.extensions.pairs.offload.units import OffloadPoint
from pytest_npubench.extensions.pairs.suites.offload.spec import OffloadSize, OffloadSpec

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
