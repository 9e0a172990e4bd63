"""Two environments measured in turn: their sessions as pairs, judged by the difference within each pair.

Worked example: pairs 1, 2 and 3, B slower in each by 5 %: one verdict a metric over 3 pairs (verdict.paired).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from pytest_npubench.comparison.members import ComparedMetric, common
from pytest_npubench.comparison.outcome import Comparison
from pytest_npubench.comparison.sides import Side, SideSession
from pytest_npubench.comparison.upgrade import Members, weigh
from pytest_npubench.errors import ConfigError
from pytest_npubench.verdict import Judged, judge_pairs

Pair = tuple[Side, Side]


def compare_pairs(
    pairs: Sequence[Pair],
    *,
    labels: tuple[str, str],
    margin: float = 0.01,
    q: float = 0.05,
    metrics: Collection[str] = (),
    notes: Iterable[str] = (),
) -> Comparison:
    """B held against A pair by pair; each side of a pair is the journal of one process.

    Raises ConfigError where there is no pair, nothing is on both sides, or margin or q is wrong.
    """
    old, new = (
        Side(
            label=label,
            sessions=tuple(
                session for number, pair in enumerate(pairs, start=1) for session in _named(pair[side], number)
            ),
            notes=tuple(notes) if side == 0 else (),
        )
        for side, label in enumerate(labels)
    )
    if not (old.sessions and new.sessions):
        raise ConfigError(f"no pair of processes measured a case{_because(notes)}")
    return weigh(old, new, common(old.sessions, new.sessions, metrics), _judge, margin, q)


def _named(side: Side, number: int) -> list[SideSession]:
    """Gives both sessions of a pair one name, by which they are matched; each device makes its own pair."""
    return [replace(session, name=f"pair {number} {session.facts['device']}") for session in side.sessions]


def _judge(members: Members, margin: float, q: float) -> Iterable[Judged]:
    first = next(iter(members.values()))
    yield judge_pairs(
        {name: _samples(member) for name, member in members.items()},
        margin=margin,
        q=q,
        better=first.definition.better,
        scale=first.scale,
    )


def _samples(member: ComparedMetric) -> list[tuple[Sequence[float], Sequence[float]]]:
    """Returns the samples of pairs on both sides. A suspect's first process counts: it was chosen for being slow."""
    return [(member.old[name][0], member.new[name][0]) for name in member.old if name in member.new]


def _because(notes: Iterable[str]) -> str:
    said = "; ".join(notes)
    return f": {said}" if said else ""
