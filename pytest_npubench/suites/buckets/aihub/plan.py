"""What an AI Hub campaign measures: the prefill and the decode graph of each bucket, on each unit of one phone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npubench.core.measurement import Phase
from pytest_npubench.engines.aihub.profile import UNITS
from pytest_npubench.suites.buckets.plan import BucketPlan
from pytest_npubench.suites.buckets.service import BucketService

if TYPE_CHECKING:
    from pytest_npubench.backends.protocol import Runtime
    from pytest_npubench.campaign.kind import CaseKind
    from pytest_npubench.campaign.protocol import Bench
    from pytest_npubench.engines.aihub.graph import GraphSpec

NUM_ROUNDS = 1  # a job is a hundred runs, and costs the user's quota
PHASES = (Phase.PREFILL, Phase.DECODE)
STAND_IN = "stand_in"  # a series of graphs that a stand-in of the service profiled


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphPoint:
    """One graph on one unit: one profile job a round."""

    phase: Phase
    bucket: int
    unit: str

    @property
    def name(self) -> str:
        return f"graph/{self.phase.value}/{self.bucket}/{self.unit}"

    @property
    def definition(self) -> list[object]:
        return [self.name]

    def visits(self, duration_s: float) -> int:
        return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HubPlan(BucketPlan):
    """A bucket plan whose cases rest on graphs. Buckets, models, dtype and limits are the hardware file's."""

    units: tuple[str, ...] = UNITS

    @property
    def settings(self) -> dict[str, object]:
        from pytest_npubench.engines.aihub.options import JobOptions

        options = JobOptions(units=self.units)
        return {
            "buckets": self.buckets,
            "dtype": self.spec.dtype,
            "compile_options": options.compile_options,
            "profile_options": [options.profile_options(unit) for unit in self.units],
        }

    def graph(self, point: GraphPoint) -> GraphSpec:
        """Raises RegistryError on an unknown model, ConfigError on a dtype that is not exported."""
        from pytest_npubench.engines import shapes
        from pytest_npubench.engines.aihub.graph import GraphSpec

        return GraphSpec(
            shape=shapes.decoder_shape(self.model),
            phase=point.phase,
            bucket=point.bucket,
            batch_size=1 if point.phase is Phase.PREFILL else self.batch_size,
            dtype=self.spec.dtype,
        )

    def graph_points(self, buckets: Sequence[int], units: Sequence[str] | None = None) -> tuple[GraphPoint, ...]:
        """Prefill and decode of each bucket on each unit."""
        return tuple(
            GraphPoint(phase=phase, bucket=bucket, unit=unit)
            for bucket in buckets
            for phase in PHASES
            for unit in (self.units if units is None else units)
        )


class HubBuckets(BucketService):
    """Cases rest on graphs; the devices are not ours."""

    fills_memory = False

    def plan(self, plan: BucketPlan) -> BucketPlan:
        return hub_plan(plan)

    def kind_for(self, plan: BucketPlan, kind: CaseKind[Any]) -> CaseKind[Any]:
        from pytest_npubench.suites.buckets.aihub.kinds import kind_for

        return kind_for(plan, kind)

    def bench(self, runtime: Runtime, plan: BucketPlan, folder: Path) -> Bench[Any]:
        from pytest_npubench.suites.buckets.aihub.bench import GraphBench

        assert isinstance(plan, HubPlan)  # plan() made it
        return GraphBench(runtime, plan, folder / "aihub-jobs")


def hub_plan(plan: BucketPlan) -> HubPlan:
    """The same plan, measured by graphs, in one round."""
    return HubPlan(
        spec=plan.spec,
        size=replace(plan.size, min_rounds=NUM_ROUNDS, max_rounds=NUM_ROUNDS),
        model=plan.model,
        batch_size=plan.batch_size,
        case_error=plan.case_error,
        mean_error=plan.mean_error,
        rivals=plan.rivals,
    )
