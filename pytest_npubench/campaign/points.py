"""What a campaign measures: points, and what came of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from pytest_npubench.campaign.visits import Round, VisitT, columns_of
from pytest_npubench.campaign.watch import Watched
from pytest_npubench.core.measurement import CompileRecord, Samples
from pytest_npubench.errors import MeasurementError


class VisitedOnce:
    """A point that its name defines, measured once in a round."""

    __slots__ = ()

    @property
    def name(self) -> str:
        raise NotImplementedError

    @property
    def definition(self) -> list[object]:
        return [self.name]

    def visits(self, duration_s: float) -> int:
        return 1


@dataclass(slots=True, kw_only=True)
class Measured:
    """The samples of a campaign so far: one tuple of seconds per point and round, and the points that failed.

    `rounds` are those that count. Rounds on a disturbed device are kept apart, and join them only where too few clean
    ones came about: `disturbed` then says so, and no case may be judged by them.
    """

    rounds: list[Round] = field(default_factory=list)
    watched: list[Watched] = field(default_factory=list)
    """What is known of the device in each of `rounds`."""
    disturbed_rounds: list[Round] = field(default_factory=list)
    disturbances: list[Watched] = field(default_factory=list)
    disturbed: str | None = None
    failures: dict[str, str] = field(default_factory=dict)
    unsteady: tuple[str, ...] = ()
    compiles: tuple[CompileRecord, ...] = ()
    num_late_compiles: int = 0
    """Compiles of the whole process while rounds ran: nothing may compile after warm-up."""
    measure_s: float = 0.0
    num_resumed_rounds: int = 0

    def add(self, samples: Round, watched: Watched) -> None:
        """One more round, put where it belongs."""
        clean = watched.disturbed is None
        (self.rounds if clean else self.disturbed_rounds).append(samples)
        (self.watched if clean else self.disturbances).append(watched)

    def keep_disturbed(self) -> None:
        """Let the disturbed rounds count after all, and say so: an invalid case still shows what was measured."""
        reason = self.disturbances[-1].disturbed
        number = len(self.disturbed_rounds)
        lost_s = sum(item.state.duration_s for item in self.disturbances if item.state is not None)
        waited = f", {lost_s:.0f} s in all" if lost_s >= 1 else ""
        self.disturbed = f"{number} of {number + len(self.rounds)} rounds disturbed{waited}: {reason}"
        self.rounds.extend(self.disturbed_rounds)
        self.watched.extend(self.disturbances)

    @property
    def is_partly_disturbed(self) -> bool:
        """Whether a third or more of the rounds were disturbed and left out, and enough others are there."""
        num_left_out = 0 if self.disturbed else len(self.disturbed_rounds)
        return num_left_out > 0 and 2 * num_left_out >= len(self.rounds)

    @property
    def energy_j(self) -> float | None:
        """Joules of the rounds that count; None where the device does not tell them for each."""
        joules = self._values("energy_j")
        return sum(joules) if joules and len(joules) == len(self.rounds) else None

    def _values(self, name: str) -> list[float]:
        values = (getattr(item.state, name) for item in self.watched if item.state is not None)
        return [value for value in values if value is not None]

    def visits(self, name: str, of: type[VisitT]) -> tuple[tuple[VisitT, ...], ...]:
        """What the visits of a point left, by round; rounds without any are left out. Raises MeasurementError with the
        reason where the point failed, has no visit at all, or has visits of another class."""
        self.check(name)
        rounds = tuple(filter(None, (columns_of(row, name) for row in self.rounds)))
        if not rounds:
            raise MeasurementError(f"{name}: no round has samples of it")
        return tuple(map(of.of_columns, rounds))

    def check(self, name: str) -> None:
        """Raises MeasurementError with the reason where the point of that name failed."""
        if name in self.failures:
            raise MeasurementError(self.failures[name])

    def samples(self, name: str) -> Samples:
        """All samples of a point over the rounds. Raises MeasurementError with the reason where it failed."""
        self.check(name)
        return Samples(name=name, samples_s=tuple(value for row in self.rounds for value in row.get(name, ())))

    def round_means_s(self, name: str) -> tuple[float, ...]:
        """Returns the mean of each round that visited the point."""
        self.samples(name)
        return tuple(sum(row[name]) / len(row[name]) for row in self.rounds if row.get(name))
