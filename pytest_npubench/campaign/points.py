"""What a campaign measures: points, and what came of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_npubench.errors import MeasurementError
from pytest_npubench.measurement import CompileRecord, Request, Samples

VISIT_S = 0.5
MAX_VISITS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One thing to time: a batch of requests end to end, or a move of the KV cache between neighbouring buckets.

    `pure_bucket` names the one bucket the batch must stay in; leaving it makes the point fail (LENS, section 4.3).
    A round visits the point for about visit_s seconds in all, or once where that takes longer.
    """

    name: str
    requests: tuple[Request, ...] = ()
    move: tuple[int, int] | None = None
    pure_bucket: int | None = None
    warm_up: bool = True
    visit_s: float = VISIT_S

    def visits(self, duration_s: float) -> int:
        """How often one round visits the point when it takes so long: 1 to 6 times."""
        return max(1, min(MAX_VISITS, int(self.visit_s / duration_s) if duration_s > 0 else MAX_VISITS))

    @property
    def definition(self) -> list[object]:
        """JSON form for the campaign's digest."""
        return [self.name, [[item.input_tokens, item.output_tokens] for item in self.requests], self.move]


@dataclass(slots=True, kw_only=True)
class Measured:
    """The samples of a campaign so far: one tuple of seconds per point and round, and the points that failed."""

    rounds: list[Mapping[str, tuple[float, ...]]] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    unsteady: tuple[str, ...] = ()
    compiles: tuple[CompileRecord, ...] = ()
    num_late_compiles: int = 0
    """Compiles of the whole process while rounds ran: nothing may compile after warm-up."""
    measure_s: float = 0.0
    num_resumed_rounds: int = 0

    def samples(self, name: str) -> Samples:
        """All samples of a point over the rounds. Raises MeasurementError with the reason where it failed."""
        if name in self.failures:
            raise MeasurementError(self.failures[name])
        return Samples(name=name, samples_s=tuple(value for row in self.rounds for value in row.get(name, ())))

    def round_means_s(self, name: str) -> tuple[float, ...]:
        """The mean of each round that visited the point."""
        self.samples(name)
        return tuple(sum(row[name]) / len(row[name]) for row in self.rounds if row.get(name))
