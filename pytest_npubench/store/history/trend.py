"""The history as series: one figure a session of a case's metric on one device class, what changed in the stack from
session to session, and where the level changed.

A session's figure is the median of its metric; of several devices of the class the middle one (of two, their geometric
mean). Sessions whose figure is not above 0 have no logarithm: they are shown and left out of the search for changes.

Worked example: medians of 2.0 ms on driver 570.86 for ten nights and 2.2 ms on 580.12 for ten give one change of ratio
1.1 with stack == ("driver 570.86 -> 580.12",).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

from pytest_npubench.store.fingerprint import FingerprintKey
from pytest_npubench.store.history.change_points import change_points
from pytest_npubench.store.history.records import SeriesRow
from pytest_npubench.verdict import JUDGED, VerdictKind

COMPARED = {kind.value for kind in JUDGED}
CHANGED = {VerdictKind.REGRESSED.value, VerdictKind.IMPROVED.value}


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One session of a series. median is in the metric's unit; num_samples counts the raw samples behind it; stack is
    what changed with it since the session before on its host, of a host's first session since the one before.
    `compared` is its verdict's kind, None where it has none; `since` the session of the change that it says is there,
    `gone` that of one which it says is there no more."""

    session: str
    started_at: str
    host: str | None
    git_revision: str | None
    key: FingerprintKey
    median: float
    num_samples: int
    stack: tuple[str, ...]
    compared: str | None
    since: str | None
    gone: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The sessions of one metric of a case, as it was measured under one digest on one device class, oldest first."""

    case: str
    digest: str
    metric: str
    device_class: str
    unit: str
    better: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendChange:
    """A new level from `session` on: medians of the sessions before and after, up to the next changes.

    ratio is after over before; worse says whether that is the wrong way; stack is what changed with that session.
    """

    case: str
    digest: str
    metric: str
    device_class: str
    unit: str
    session: str
    started_at: str
    before: float
    after: float
    ratio: float
    worse: bool
    stack: tuple[str, ...]


def series_of(rows: Iterable[SeriesRow]) -> tuple[Series, ...]:
    """The series of these rows, which come by start of their session; by case, metric, device class and digest, and
    one for each unit and direction: numbers of two units are no series."""
    grouped: dict[tuple[str, ...], dict[str, list[SeriesRow]]] = {}
    for row in rows:
        name = (row.case, row.metric, row.key.device_class, row.digest, row.unit, row.better)
        grouped.setdefault(name, {}).setdefault(row.session, []).append(row)
    return tuple(_series(list(sessions.values())) for _, sessions in sorted(grouped.items()))


def _stack_changes(before: SeriesRow, after: SeriesRow) -> tuple[str, ...]:
    """Everything that differs, parts of the key first; these alone where the history holds no more."""
    if before.fingerprint is None or after.fingerprint is None:
        return before.key.differences(after.key)
    if before.fingerprint is after.fingerprint:
        return ()
    return before.fingerprint.differences(after.fingerprint)


def changes_of(series: Series) -> tuple[TrendChange, ...]:
    """The changes of level, oldest first."""
    points = [point for point in series.points if point.median > 0]
    begins = change_points([math.log(point.median) for point in points])
    if not begins:
        return ()
    edges = [0, *begins, len(points)]
    levels = [statistics.median(point.median for point in points[i:j]) for i, j in pairwise(edges)]
    return tuple(
        _change(series, points[at], before, after) for at, (before, after) in zip(begins, pairwise(levels), strict=True)
    )


def _series(sessions: list[list[SeriesRow]]) -> Series:
    last = sessions[-1][0]
    before: list[list[SeriesRow] | None] = []
    latest: dict[str | None, list[SeriesRow]] = {}
    for rows, previous in zip(sessions, [None, *sessions], strict=False):
        before.append(latest.get(rows[0].host, previous))
        latest[rows[0].host] = rows
    return Series(
        case=last.case,
        digest=last.digest,
        metric=last.metric,
        device_class=last.key.device_class,
        unit=last.unit,
        better=last.better,
        points=_with_gone(map(_point, before, sessions)),
    )


def _with_gone(points: Iterable[Point]) -> tuple[Point, ...]:
    """A change that the newest verdict before named, and that of a session does not, is gone then."""
    marked: list[Point] = []
    since = None
    for point in points:
        is_compared = point.compared in COMPARED
        marked.append(replace(point, gone=since) if is_compared and point.since is None else point)
        since = point.since if is_compared else since
    return tuple(marked)


def _point(before: list[SeriesRow] | None, rows: list[SeriesRow]) -> Point:
    medians = [row.median for row in rows]
    positive = min(medians) > 0
    middle = math.exp(statistics.median(map(math.log, medians))) if positive else statistics.median(medians)
    first = rows[0]
    newest = next((row for row in rows if row.since is not None), first)
    return Point(
        session=first.session,
        started_at=first.started_at,
        host=first.host,
        git_revision=first.git_revision,
        key=first.key,
        median=medians[0] if len(rows) == 1 else middle,
        num_samples=sum(len(row.samples) for row in rows),
        stack=() if before is None else _stack_changes(before[0], first),
        compared=newest.compared,
        since=newest.since if newest.compared in CHANGED else None,  # of another verdict it is of a change that is gone
    )


def _change(series: Series, first: Point, before: float, after: float) -> TrendChange:
    return TrendChange(
        case=series.case,
        digest=series.digest,
        metric=series.metric,
        device_class=series.device_class,
        unit=series.unit,
        session=first.session,
        started_at=first.started_at,
        before=before,
        after=after,
        ratio=after / before,
        worse=(after > before) == (series.better == "lower"),
        stack=first.stack,
    )
