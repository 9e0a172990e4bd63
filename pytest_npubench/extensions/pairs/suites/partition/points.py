"""What a partition campaign measures, and the record that a visit leaves: one operator under one split, signals between
the units, memory streams, chains of operators.

A whole decoder layer is in `layers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from pytest_npubench.campaign.points import VisitedOnce
from pytest_npubench.campaign.visits import Columns, Visit
from pytest_npubench.extensions.pairs.partition.matmul import Matmul, Split, row_split
from pytest_npubench.extensions.pairs.partition.number_formats import FP32
from pytest_npubench.extensions.pairs.partition.solver import Decision
from pytest_npubench.extensions.pairs.partition.strategies import all_splits
from pytest_npubench.extensions.pairs.partition.unit import (
    Chain,
    SplitTiming,
    UnitPair,
    beside,
    run_cold,
    runs_chains,
)
from pytest_npubench.extensions.pairs.suites.partition.plan import PartitionPlan

VISIT_S = 0.1
MAX_VISITS = 8
SLOWEST = "slowest"
COLD = "/cold"  # ends the name of a point whose weights come from memory


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPair:
    """A campaign's pair of units and plan, and what the solver decided for its operators so far."""

    units: UnitPair
    plan: PartitionPlan
    decisions: dict[tuple[int, int, int], Decision] = field(default_factory=dict)

    def decide(self, matmul: Matmul, decision: Decision) -> None:
        self.decisions[_shape(matmul)] = decision

    def decision(self, matmul: Matmul) -> Decision:
        return self.decisions[_shape(matmul)]

    def run(self, matmul: Matmul, split: Split, mechanism: str | None = None, *, is_cold: bool = False) -> SplitTiming:
        """On warm weights the second of two runs: a round visits all operators in turn, and the weights of the one
        before fill the caches, which a profile of one operator after the other does not see."""
        if is_cold:
            return run_cold(self.units, matmul, split, mechanism)
        self.units.run(matmul, split, mechanism=mechanism)
        return self.units.run(matmul, split, mechanism=mechanism)


def _shape(matmul: Matmul) -> tuple[int, int, int]:
    """Operators of one shape are one to a solver, whatever their place."""
    return matmul.rows, matmul.cols, matmul.tokens


class PairPoint(VisitedOnce):
    """A point that its name defines, on a pair of units."""

    __slots__ = ()

    def undecided(self, plan: PartitionPlan) -> tuple[Matmul, ...]:
        """What a solver has to decide before the point can be visited."""
        return ()

    def loads(self, opened: OpenPair) -> tuple[tuple[Matmul, Split], ...]:
        """What the bench loads before the point is visited."""
        return ()

    def check(self, opened: OpenPair) -> None:
        """Check the outputs of what it does not load but makes in its visits. Raises MeasurementError where they are
        wrong."""

    def visit(self, opened: OpenPair) -> Visit:
        """Visit it once; what it loads is loaded and was checked."""
        raise NotImplementedError


class OperatorPoint(PairPoint):
    """One operator under one split, visited in a round as often as fits into VISIT_S."""

    __slots__ = ()
    matmul: Matmul
    is_cold: bool

    def split_on(self, opened: OpenPair) -> Split:
        raise NotImplementedError

    def loads(self, opened: OpenPair) -> tuple[tuple[Matmul, Split], ...]:
        split = self.split_on(opened)
        return ((self.matmul, split), *(((beside(self.matmul), split),) if self.is_cold else ()))

    def visits(self, duration_s: float) -> int:
        return max(1, min(MAX_VISITS, int(VISIT_S / duration_s) if duration_s > 0 else MAX_VISITS))


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitVisit(SplitTiming, Visit):
    """One run of a split, as its units timed it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SplitPoint(OperatorPoint):
    """One run of an operator under a split; mechanism None: the pair's fastest, SLOWEST: its slowest. is_cold: the
    weight comes from memory, else from the caches as far as they hold it.

    Points of one name are one, whatever operator or strategy they were asked for: equal shapes take equal time.
    """

    matmul: Matmul
    split: Split
    mechanism: str | None = None
    is_cold: bool = False

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
        cold, dtype = COLD if self.is_cold else "", "" if matmul.dtype == FP32 else f".{matmul.dtype}"
        return f"{matmul.rows}x{matmul.cols}x{matmul.tokens}{dtype}/{parts}{online}{mechanism}{cold}"

    def split_on(self, opened: OpenPair) -> Split:
        return self.split

    def visit(self, opened: OpenPair) -> SplitVisit:
        mechanism = opened.units.mechanisms[-1] if self.mechanism == SLOWEST else self.mechanism
        return SplitVisit(**asdict(opened.run(self.matmul, self.split, mechanism, is_cold=self.is_cold)))


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTripVisit(Visit):
    """Seconds of each trip, by mechanism, the pair's fastest first."""

    trips_s: Mapping[str, tuple[float, ...]]

    def columns(self) -> Columns:
        return self.trips_s

    @classmethod
    def of_columns(cls, columns: Columns) -> tuple[RoundTripVisit, ...]:
        return (cls(trips_s={mechanism: tuple(trips_s) for mechanism, trips_s in columns.items()}),)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTripPoint(PairPoint):
    """Signals to the other unit and back, by every mechanism that the pair has."""

    num_trips: int = 100

    @property
    def name(self) -> str:
        return "round_trip"

    @property
    def definition(self) -> list[object]:
        return [self.name, self.num_trips]

    def visit(self, opened: OpenPair) -> RoundTripVisit:
        units = opened.units
        return RoundTripVisit(trips_s={name: units.round_trips_s(name, self.num_trips) for name in units.mechanisms})


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamVisit(Visit):
    """Bytes a second that each unit read; None of a unit that read nothing."""

    gpu: float | None = None
    npu: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPoint(PairPoint):
    """The units named read memory at the same time."""

    units: tuple[str, ...]
    num_bytes: int

    @property
    def name(self) -> str:
        return f"stream/{'+'.join(self.units)}"

    @property
    def definition(self) -> list[object]:
        return [self.name, self.num_bytes]

    def visit(self, opened: OpenPair) -> StreamVisit:
        return StreamVisit(**opened.units.stream_bytes_per_s(self.units, self.num_bytes))


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionVisit(SplitVisit):
    """One run of what the solver decided. split_index: its index among all splits; predicted_s: the seconds
    it predicted for it."""

    split_index: int
    predicted_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionPoint(OperatorPoint):
    """What the solver decides for an operator, by a profile that the campaign's bench measures for itself: the decided
    split is run, beside its index among all splits and the seconds predicted for it."""

    matmul: Matmul
    is_cold: bool = False

    @property
    def name(self) -> str:
        cold = COLD if self.is_cold else ""
        return f"decision/{self.matmul.rows}x{self.matmul.cols}x{self.matmul.tokens}{cold}"

    def undecided(self, plan: PartitionPlan) -> tuple[Matmul, ...]:
        return (self.matmul,)

    def split_on(self, opened: OpenPair) -> Split:
        return opened.decision(self.matmul).split

    def visit(self, opened: OpenPair) -> DecisionVisit:
        decision = opened.decision(self.matmul)
        return DecisionVisit(
            **asdict(opened.run(self.matmul, decision.split, is_cold=self.is_cold)),
            split_index=all_splits(self.matmul, opened.plan.options).index(decision.split),
            predicted_s=decision.predicted_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapVisit(Visit):
    """Seconds of a chain by the fastest and by the slowest mechanism, of the same operators without dependencies, and
    of what an operator of each chain takes beyond its slower unit. gpu_s, npu_s: each unit's own time for its parts of
    the fast chain."""

    queued_s: float
    fast_s: float
    fast_exposed_s: float
    slow_s: float
    slow_exposed_s: float
    gpu_s: float
    npu_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapPoint(PairPoint):
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

    @property
    def _split(self) -> Split:
        return row_split(self.matmul, self.gpu_share)

    def loads(self, opened: OpenPair) -> tuple[tuple[Matmul, Split], ...]:
        return ((self.matmul, self._split),)

    def visit(self, opened: OpenPair) -> OverlapVisit:
        """Chain and queue run inside the pair's own process."""
        units, split = runs_chains(opened.units), self._split
        queued = units.run_queued(self.matmul, split, self.num_operators)
        fast, slow = (
            Chain(total_s=total_s, operators=runs)
            for total_s, runs in (
                units.run_chain(self.matmul, split, self.num_operators, mechanism=mechanism)
                for mechanism in (units.mechanisms[0], units.mechanisms[-1])
            )
        )
        return OverlapVisit(
            queued_s=queued.total_s,
            fast_s=fast.total_s,
            fast_exposed_s=fast.exposed_s,
            slow_s=slow.total_s,
            slow_exposed_s=slow.exposed_s,
            gpu_s=sum(run.gpu_s or 0.0 for run in fast.operators),
            npu_s=sum(run.npu_s or 0.0 for run in fast.operators),
        )
