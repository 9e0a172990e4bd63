"""What a round becomes in a trace: lanes of spans, as far as a suite knows what began when."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pytest_npubench.campaign.visits import Round


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSpan:
    """What took so long, on a track of its lane. Spans of one track lie behind each other or inside each other.
    start_s is seconds after the lane begins."""

    track: str
    name: str
    start_s: float
    duration_s: float
    figures: Mapping[str, float | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """The value of a counter from then on, until the next one of its name."""

    name: str
    at_s: float
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """What one point did in one round, under a title of its own."""

    title: str
    spans: tuple[TraceSpan, ...]
    levels: tuple[Level, ...] = ()

    @property
    def end_s(self) -> float:
        return max((span.start_s + span.duration_s for span in self.spans), default=0.0)


Lanes = Callable[[Round], Iterable[Lane]]
"""What one round of a suite's campaign becomes."""


def plain_lanes(points: Round) -> Iterator[Lane]:
    """Draws points that leave their seconds: a track for each, its samples one behind the other."""
    spans = [span for name, values in points.items() for span in in_turn(name, name, values)]
    if spans:
        yield Lane(title="points", spans=tuple(spans))


def in_turn(track: str, name: str, durations_s: Iterable[float]) -> Iterator[TraceSpan]:
    """Durations one behind the other, from the beginning of the lane."""
    start_s = 0.0
    for duration_s in durations_s:
        yield TraceSpan(track=track, name=name, start_s=start_s, duration_s=duration_s)
        start_s += duration_s
