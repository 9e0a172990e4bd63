"""Runs of one night that judged a part of the suite each, seen together.

Each run has a budget of false alarms for what it judges, so N parts of a night have N of them. Where a history has the
parts, a change that alarmed among the metrics of its own run is held to the number of all: one that does not alarm
among so many is in doubt. Parts of one night began within NIGHT of the first, at one commit, and share no case.

Worked example: two halves judged 12 and 40 metrics. A regression that would alarm among 30 at most was one among 12,
and is in doubt among 52.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pytest_npubench.comparison.judged_share import AGAINST_BASELINE
from pytest_npubench.store.history.records import SeriesRow
from pytest_npubench.verdict.result import STATISTICAL

NIGHT = timedelta(hours=12)


@dataclass(frozen=True, slots=True, kw_only=True)
class InDoubt:
    """A change that its own session alarmed of, and that the night's sessions together would not have."""

    session: str
    case: str
    metric: str
    kind: str
    num_sessions: int
    num_judged: int

    def __str__(self) -> str:
        return (
            f"in doubt: {self.case} {self.metric} is {self.kind} by {self.session} alone, and not among the "
            f"{self.num_judged} metrics of all {self.num_sessions} sessions"
        )


@dataclass(slots=True)
class _Shards:
    """Sessions of one night so far."""

    began_at: datetime
    git_revision: str | None
    rows: list[SeriesRow] = field(default_factory=list)

    def takes(self, rows: list[SeriesRow]) -> bool:
        is_near = _began_at(rows) - self.began_at <= NIGHT and rows[0].git_revision == self.git_revision
        return is_near and {row.case for row in rows}.isdisjoint(row.case for row in self.rows)


def in_doubt_together(rows: Iterable[SeriesRow]) -> tuple[InDoubt, ...]:
    """Returns the cases in doubt over all sessions of a history, or of some days."""
    sessions: dict[str, list[SeriesRow]] = {}
    for row in rows:
        sessions.setdefault(row.session, []).append(row)
    nights: list[_Shards] = []
    for members in sorted(sessions.values(), key=_began_at):
        night = next((one for one in nights if one.takes(members)), None)
        if night is None:
            night = _Shards(began_at=_began_at(members), git_revision=members[0].git_revision)
            nights.append(night)
        night.rows += members
    return tuple(found for night in nights for found in _doubts(night.rows))


def _began_at(rows: list[SeriesRow]) -> datetime:
    return datetime.fromisoformat(rows[0].started_at)


def _doubts(rows: list[SeriesRow]) -> list[InDoubt]:
    num_sessions = len({row.session for row in rows})
    num_judged = sum(row.gate in STATISTICAL and row.compared in AGAINST_BASELINE for row in rows)
    return [
        InDoubt(
            session=row.session,
            case=row.case,
            metric=row.metric,
            kind=row.compared or "",
            num_sessions=num_sessions,
            num_judged=num_judged,
        )
        for row in rows
        if row.alarms_among is not None and row.alarms_among < num_judged
    ]
