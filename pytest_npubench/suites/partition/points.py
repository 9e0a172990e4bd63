"""What a partition campaign measures: one operator under one split, signals between the units, memory streams."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_npubench.campaign.points import VisitedOnce
from pytest_npubench.partition.matmul import Matmul, Split
from pytest_npubench.partition.unit import SplitTiming

VISIT_S = 0.1
MAX_VISITS = 8
SLOWEST = "slowest"


class VisitedBriefly(VisitedOnce):
    """A point that its name defines, visited in a round as often as fits into VISIT_S."""

    __slots__ = ()

    def visits(self, duration_s: float) -> int:
        return max(1, min(MAX_VISITS, int(VISIT_S / duration_s) if duration_s > 0 else MAX_VISITS))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SplitPoint(VisitedBriefly):
    """One run of an operator under a split; mechanism None: the pair's fastest, SLOWEST: its slowest.

    Points of one name are one, whatever operator or strategy they were asked for: equal shapes take equal time.
    """

    matmul: Matmul
    split: Split
    mechanism: str | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SplitPoint) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def name(self) -> str:
        matmul, split = self.matmul, self.split
        parts = "+".join(
            f"{part.unit}{part.first_row}:{part.num_rows}x{part.first_token}:{part.num_tokens}/{part.padded_tokens}"
            for part in split.parts
        )
        online = "/online" if split.prepares_online else ""
        mechanism = f"/{self.mechanism}" if self.mechanism else ""
        return f"{matmul.rows}x{matmul.cols}x{matmul.tokens}/{parts}{online}{mechanism}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTripPoint(VisitedOnce):
    """Signals to the other unit and back, by every mechanism that the pair has."""

    num_trips: int = 100

    @property
    def name(self) -> str:
        return "round_trip"

    @property
    def definition(self) -> list[object]:
        return [self.name, self.num_trips]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPoint(VisitedOnce):
    """The units named read memory at the same time."""

    units: tuple[str, ...]
    num_bytes: int

    @property
    def name(self) -> str:
        return f"stream/{'+'.join(self.units)}"

    @property
    def definition(self) -> list[object]:
        return [self.name, self.num_bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionPoint(VisitedBriefly):
    """What the solver decides for an operator, by a profile that the campaign's bench measures for itself: the decided
    split is run, beside its place among all splits and the seconds predicted for it."""

    matmul: Matmul

    @property
    def name(self) -> str:
        return f"decision/{self.matmul.rows}x{self.matmul.cols}x{self.matmul.tokens}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapPoint(VisitedOnce):
    """A chain of dependent operators, the GPU with so much of the rows, by the fastest and by the slowest mechanism,
    and the same operators without dependencies."""

    matmul: Matmul
    gpu_share: float
    num_operators: int = 8

    @property
    def name(self) -> str:
        return f"overlap/{self.matmul.rows}x{self.matmul.cols}x{self.matmul.tokens}/{self.gpu_share:g}"

    @property
    def definition(self) -> list[object]:
        return [self.name, self.num_operators]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerPoint(VisitedOnce):
    """A whole decoder layer at so many tokens after a context: as the solver splits it, and on each unit alone."""

    tokens: int
    context: int

    @property
    def name(self) -> str:
        return f"layer/{self.tokens}@{self.context}"


PartitionPoint = SplitPoint | RoundTripPoint | StreamPoint | DecisionPoint | OverlapPoint | LayerPoint


def timing_samples(point: SplitPoint | DecisionPoint, timing: SplitTiming) -> dict[str, tuple[float, ...]]:
    """What a visit leaves, under the point's name; a unit without work leaves nothing."""
    figures = {name: getattr(timing, name) for name in SplitTiming.__slots__}
    return {f"{point.name}/{name}": (value,) for name, value in figures.items() if value is not None}
