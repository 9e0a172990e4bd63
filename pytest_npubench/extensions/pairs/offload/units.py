"""The two units as an experiment sees them, and what an experiment is: named points, each measured by one visit.

The dynamic unit is this process with torch on one thread, the static one runs graphs compiled for one shape each
(`XlaWorker`). Both see the arrays of `arena`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from pytest_npubench.campaign.points import VisitedOnce
from pytest_npubench.campaign.visits import Visit
from pytest_npubench.errors import RegistryError
from pytest_npubench.extensions.pairs.partition.units.arena import SharedArena
from pytest_npubench.extensions.pairs.partition.units.xla_worker import XlaWorker

FAST, SLOW = "flag", "pipe"
"""Synchronisation by a polled word in shared memory, and by a pipe that blocks: about 1 and 100 us a round trip."""


@dataclass(frozen=True, slots=True)
class Units:
    """spare_cores: those of this machine that neither unit is pinned to."""

    arena: SharedArena
    static: XlaWorker
    spare_cores: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadPoint(VisitedOnce):
    """One arm under one setting, as "shadow/serial/8 outliers"; visited once a round, so that rounds are paired."""

    experiment: str
    arm: str
    setting: str

    @property
    def name(self) -> str:
        return f"{self.experiment}/{self.arm}/{self.setting}"


class Figures(Visit):
    """What a visit of a point leaves: a record of the experiment's own, in seconds, bytes and shares. All are floats,
    counts too, whose median over rounds may lie between two. relative_error: the output's, against float32."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Any]]
    total_s: float
    relative_error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphFacts:
    """The static unit's graphs: their number, the bytes of their weights, all bytes as serialised, and the seconds of
    compiling them cold."""

    num_graphs: float
    weight_bytes: float
    executable_bytes: float
    compile_s: float


class TechniqueBench(Protocol):
    """One experiment on a pair. `points` are known before anything is loaded."""

    @property
    def points(self) -> tuple[OffloadPoint, ...]: ...

    def load(self) -> None:
        """Make the arrays and compile the graphs. Raises MeasurementError where memory is short."""
        ...

    def measure(self, name: str) -> Figures:
        """Visit a point once. Raises RegistryError for a name of no point."""
        ...


def point_of(points: Sequence[OffloadPoint], name: str) -> OffloadPoint:
    """Raises RegistryError with the names that are there."""
    for point in points:
        if point.name == name:
            return point
    raise RegistryError(f"no point {name!r}; points: {', '.join(point.name for point in points)}")


def make_arrays(arena: SharedArena, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Float32 arrays of these names."""
    for name, shape in shapes.items():
        arena.allocate(name, shape, "float32")
