"""What a campaign on Qualcomm AI Hub measures: a prefill and a decode graph of each bucket, on each unit of a phone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_npubench.campaign.points import VisitedOnce
from pytest_npubench.campaign.visits import Columns, Visit
from pytest_npubench.core.measurement import Phase
from pytest_npubench.extensions.compilers.hub.profile import UNITS
from pytest_npubench.extensions.compilers.suites.programs import ProgramPlan

if TYPE_CHECKING:
    from pytest_npubench.extensions.compilers.hub.graph import GraphSpec

MAIN_UNIT = "npu"
PHASES = (Phase.PREFILL, Phase.DECODE)
NUMBERS = ("first_load", "warm_load", "peak_bytes")
STAND_IN, LAYERS, LAYER_S = "stand_in", "layers/", "layer_s/"  # columns


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphPoint(VisitedOnce):
    """One graph on one unit: one profile job a round."""

    phase: Phase
    bucket: int
    unit: str

    @property
    def name(self) -> str:
        return f"graph/{self.phase.value}/{self.bucket}/{self.unit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphVisit(Visit):
    """What a profile job tells of its graph: seconds of every run, of the cold and the warm load, bytes, and by unit
    how many layers ran there and their seconds. None, or no unit, for what it did not tell. `stand_in`: a stand-in of
    the service made the figures up. A round holds the seconds of the runs under the point's own name."""

    times_s: tuple[float, ...]
    first_load: float | None = None
    warm_load: float | None = None
    peak_bytes: float | None = None
    layers: Mapping[str, int] = field(default_factory=dict)
    layer_s: Mapping[str, float] = field(default_factory=dict)
    stand_in: bool = False

    def columns(self) -> Columns:
        by_unit = {
            **{f"{LAYERS}{unit}": number for unit, number in self.layers.items()},
            **{f"{LAYER_S}{unit}": seconds for unit, seconds in self.layer_s.items()},
        }
        reported = {name: getattr(self, name) for name in NUMBERS if getattr(self, name) is not None}
        numbers = {**reported, **by_unit, **({STAND_IN: 1.0} if self.stand_in else {})}
        return {"": self.times_s, **{name: (value,) for name, value in numbers.items()}} if self.times_s else {}

    @classmethod
    def of_columns(cls, columns: Columns) -> tuple[GraphVisit, ...]:
        def by_unit(prefix: str) -> dict[str, float]:
            return {name.removeprefix(prefix): row[-1] for name, row in columns.items() if name.startswith(prefix)}

        return (
            cls(
                times_s=tuple(columns.get("", ())),
                **{name: columns[name][-1] for name in NUMBERS if columns.get(name)},
                layers={unit: int(number) for unit, number in by_unit(LAYERS).items()},
                layer_s=by_unit(LAYER_S),
                stand_in=bool(columns.get(STAND_IN)),
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PhonePlan(ProgramPlan):
    """The graphs that AI Hub profiles. units: compute units of the phone, each of which runs every graph."""

    suite = "graphs"
    kinds = ("profile", "steps", "prediction")
    engine: str = "aihub"
    units: tuple[str, ...] = UNITS

    @property
    def settings(self) -> dict[str, object]:
        from pytest_npubench.extensions.compilers.hub.jobs import JobOptions

        options = JobOptions()
        return {
            "buckets": self.buckets,
            "dtype": self.spec.dtype,
            "compile_options": options.compile_options,
            "profile_options": [options.profile_options(unit) for unit in self.units],
        }

    def graph(self, point: GraphPoint) -> GraphSpec:
        """Raises RegistryError on an unknown model, ConfigError on a dtype that is not exported."""
        from pytest_npubench.engines import shapes
        from pytest_npubench.extensions.compilers.hub.graph import GraphSpec

        return GraphSpec(
            shape=shapes.dense_shape(self.model),
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
