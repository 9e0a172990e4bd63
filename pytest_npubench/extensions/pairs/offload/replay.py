"""Orders of subgraphs replayed on the real pair, undisturbed and under contention (llm.npu leaves contention out).

Each unit decides at run time, by the policy, from what is really ready (dispatch); the durations that C and the
critical path go by were measured at load. Contention:

    calm    nothing else
    stalls  before a random share of the subgraphs the unit sleeps, as if the system had taken it away
    hog     another process moves memory all the time
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field

import numpy as np

from pytest_npubench.errors import ConfigError
from pytest_npubench.extensions.pairs.offload.bandwidth_hog import BandwidthHog
from pytest_npubench.extensions.pairs.offload.decoder import DecoderSize
from pytest_npubench.extensions.pairs.offload.pipeline import Pipeline, Variant
from pytest_npubench.extensions.pairs.offload.schedules import policy_names, simulate
from pytest_npubench.extensions.pairs.offload.units import Figures, OffloadPoint, Units, point_of

EXPERIMENT = "replay"
CALM, STALLS, HOG = "calm", "stalls", "hog"
CONTENTION = (CALM, STALLS, HOG)
VARIANT = Variant(sharing=True, shadow=False)
"""The order alone is tried: graphs shared, no shadow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings:
    """stall_fraction of the subgraphs sleep stall_s first, others in every visit. Raises ConfigError for counts below
    1, a share outside 0..1, a stall below 0, and an unknown policy."""

    size: DecoderSize = field(default_factory=DecoderSize)
    chunk_tokens: int = 64
    num_chunks: int = 4
    policies: tuple[str, ...] = policy_names()
    stall_fraction: float = 0.1
    stall_s: float = 0.002
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("chunk_tokens", "num_chunks"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; want at least 1")
        if not 0 <= self.stall_fraction <= 1 or not self.stall_s >= 0:
            raise ConfigError(
                f"stall_fraction {self.stall_fraction}, stall_s {self.stall_s}; want a share in 0..1 and seconds >= 0"
            )
        unknown = set(self.policies) - set(policy_names())
        if unknown or not self.policies:
            raise ConfigError(f"policies {self.policies}; want one or more of {', '.join(policy_names())}")

    def points(self) -> tuple[OffloadPoint, ...]:
        return tuple(
            OffloadPoint(experiment=EXPERIMENT, arm=policy, setting=contention)
            for contention in CONTENTION
            for policy in self.policies
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayVisit(Figures):
    """bubble_fraction: the share of total_s in which the static unit ran nothing. predicted_s: the same policy,
    simulated with the durations of load. stalled_s: the sum of the sleeps. relative_error: of every order the same."""

    total_s: float
    bubble_fraction: float
    predicted_s: float
    stalled_s: float
    relative_error: float


class ScheduleReplay:
    """See the module."""

    KERNELS = Pipeline.KERNELS

    def __init__(self, settings: ReplaySettings, units: Units) -> None:
        self.points = settings.points()
        self._settings = settings
        self._units = units
        self._pipeline = Pipeline(
            settings.size, units, chunk_tokens=settings.chunk_tokens, num_chunks=settings.num_chunks
        )
        self._predicted_s: dict[str, float] = {}
        self._hog: BandwidthHog | None = None
        self._chance = np.random.default_rng(settings.seed)

    def load(self) -> None:
        self._pipeline.load([VARIANT], self._settings.policies)
        dag = self._pipeline.dag(VARIANT)
        self._predicted_s = {policy: simulate(dag, policy).makespan_s for policy in self._settings.policies}
        self._hog = BandwidthHog(self._units.arena, self._units.spare_cores)

    def measure(self, name: str) -> ReplayVisit:
        point = point_of(self.points, name)
        stalls_s = self._stalls_s() if point.setting == STALLS else None
        assert self._hog is not None, "load comes first"
        with self._hog.running() if point.setting == HOG else nullcontext():
            run = self._pipeline.run(VARIANT, point.arm, stalls_s=stalls_s)
        return ReplayVisit(
            total_s=run.total_s,
            bubble_fraction=run.bubble_fraction,
            predicted_s=self._predicted_s[point.arm],
            stalled_s=sum(stalls_s or ()),
            relative_error=run.relative_error,
        )

    def _stalls_s(self) -> list[float]:
        chosen = self._chance.random(len(self._pipeline.dag(VARIANT))) < self._settings.stall_fraction
        return [self._settings.stall_s * bool(one) for one in chosen]
