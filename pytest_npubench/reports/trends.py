"""A series of the history as the page of its case shows it: its figures, its levels, what the gate said, which sessions
were accepted, and the stack's changes among them.

Worked example: of ten nights of 2.0 ms on driver 570.86 and ten of 2.2 ms on 580.12 a trend has the levels
(0, 9, 2.0 ms) and (10, 19, 2.2 ms), and one change, +10.00 %, between the commits of the tenth and the eleventh night.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

from pytest_npubench.comparison.change_origin import NUM_DIGITS, REVISION
from pytest_npubench.plain_text import plain
from pytest_npubench.reports import number_text
from pytest_npubench.store.baselines import Baselines
from pytest_npubench.store.history.trend import COMPARED, Point, Series, TrendChange, changes_of
from pytest_npubench.verdict import VerdictKind

NEAR = 2
"""Sessions by which the gate and the search for changes of level may disagree about where the same change began."""
NUM_BEFORE = 24
DIGITS = 5
DAY = 10
"""Characters of a time in ISO 8601 that are its day."""
SIGNS = {"regressed": "r", "improved": "i", "unchanged": "u", "inconclusive": "?"}
"""How the data of a page writes what the gate said of a session."""
NOTHING_SAID, AS_BEFORE = ".", 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedChange:
    """A change of a series: from which session on, what else changed with that session, and who says so. `index` is the
    place of that session in the series; `stands`: the gate's newest verdict still names it."""

    index: int
    started_at: str
    session: str
    case: str
    metric: str
    device_class: str
    size: str
    percent: str
    worse: bool
    commits: str
    stack: tuple[str, ...]
    says: str
    stands: bool

    @property
    def tone(self) -> str:
        """A change for the worse is bad as long as it stands."""
        return "good" if not self.worse else "bad" if self.stands else "neutral"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """A series with what its chart shows besides its medians. `levels` are (first, last, median) by place of sessions;
    `accepted` the places of accepted sessions, a window for each key that they were accepted under."""

    series: Series
    changes: tuple[NamedChange, ...]
    levels: tuple[tuple[int, int, float], ...]
    accepted: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, series: Series, baselines: Baselines | None) -> Trend:
        steps = changes_of(series)
        begins = [_index(series, step.session) for step in steps]
        medians = [steps[0].before, *(step.after for step in steps)] if steps else []
        edges = pairwise([0, *begins, len(series.points)])
        alarms = _alarms(series)
        levels = [
            _level_change(series, step, index)
            for step, index in zip(steps, begins, strict=True)
            if not any(abs(alarm.index - index) <= NEAR and alarm.worse is step.worse for alarm in alarms)
        ]
        return cls(
            series=series,
            changes=tuple(sorted([*alarms, *levels], key=lambda change: change.index)),
            levels=tuple((first, end - 1, median) for (first, end), median in zip(edges, medians, strict=False)),
            accepted=() if baselines is None else _accepted(series, baselines),
        )

    @property
    def last_verdict(self) -> str:
        return self.series.points[-1].compared or ""

    @property
    def last_figure(self) -> str:
        return number_text.figure(self.series.points[-1].median, self.series.unit)

    @property
    def age(self) -> float:
        """Orders trends by their last session, the newest first."""
        return -_seconds(self.series.points[-1])

    @property
    def summary(self) -> str:
        """What a screen reader says of the chart."""
        points, accepted = self.series.points, sum(map(len, self.accepted))
        values = number_text.figures([f(point.median for point in points) for f in (min, max)], self.series.unit)
        said = (
            f"{self.series.metric} in {len(points)} sessions from {values[0]} to {values[1]}, last {self.last_figure}"
        )
        return f"{said}; {len(self.changes)} changes, {accepted} accepted sessions"


def _alarms(series: Series) -> list[NamedChange]:
    """The changes that the gate named, each with the nights that it did."""
    points = series.points
    named: dict[str, list[int]] = {}
    for index, point in enumerate(points):
        if point.since is not None:
            named.setdefault(point.since, []).append(index)
    return [_alarm(series, since, indices) for since, indices in named.items()]


def _alarm(series: Series, since: str, indices: Sequence[int]) -> NamedChange:
    points = series.points
    first = next((place for place, point in enumerate(points) if point.session == since), indices[0])
    later = next((point for point in points[indices[-1] + 1 :] if point.compared in COMPARED), None)
    kind = points[indices[-1]].compared or ""
    before = [point.median for point in points[max(0, first - NUM_BEFORE) : first]]
    after = statistics.median(point.median for point in points[first : indices[-1] + 1])
    return _named(
        series,
        first,
        before=statistics.median(before) if before else None,
        after=after,
        worse=kind == VerdictKind.REGRESSED.value,
        says=f"gate: {kind}" if later is None else f"gate: {kind} until {later.started_at[:DAY]}",
        stands=later is None,
    )


def _level_change(series: Series, step: TrendChange, index: int) -> NamedChange:
    says = "change of level"
    return _named(series, index, before=step.before, after=step.after, worse=step.worse, says=says, stands=False)


def _named(
    series: Series, index: int, *, before: float | None, after: float, worse: bool, says: str, stands: bool
) -> NamedChange:
    first = series.points[index]
    old, new = number_text.figures((before, after), series.unit)
    return NamedChange(
        index=index,
        started_at=first.started_at,
        session=first.session,
        case=series.case,
        metric=series.metric,
        device_class=series.device_class,
        size=f"{old} -> {new}",
        percent=number_text.change(after / before - 1) if before else "",
        worse=worse,
        commits=_commits(series.points[index - 1] if index else None, first),
        stack=_without_commit(first.stack),
        says=says,
        stands=stands,
    )


def _commits(before: Point | None, first: Point) -> str:
    """The range as git takes it."""
    new = first.git_revision
    old = None if before is None else before.git_revision
    if not (old and new):
        return "unknown"
    return f"the same, {new[:NUM_DIGITS]}" if old == new else f"{old[:NUM_DIGITS]}..{new[:NUM_DIGITS]}"


def _without_commit(stack: Sequence[str]) -> tuple[str, ...]:
    return tuple(plain(text) for text in stack if not text.startswith(f"{REVISION} "))


def _index(series: Series, session: str) -> int:
    return next(place for place, point in enumerate(series.points) if point.session == session)


def _accepted(series: Series, baselines: Baselines) -> tuple[tuple[int, ...], ...]:
    places = {point.session: place for place, point in enumerate(series.points)}
    windows = []
    for key in dict.fromkeys(point.key for point in series.points):
        histories = baselines.histories(series.case, key, digest=series.digest)
        names = [session.session.partition("@")[0] for sessions in histories for session in sessions]
        windows.append(tuple(sorted({places[name] for name in names if name in places})))
    return tuple(filter(None, windows))


def _seconds(point: Point) -> float:
    return datetime.fromisoformat(point.started_at).timestamp()


def stacks(trends: Sequence[Trend]) -> list[tuple[Point, tuple[str, ...]]]:
    """The sessions of these trends with which the stack changed, newest first, and what of it, without commits."""
    changed = {
        point.session: (point, lines)
        for trend in trends
        for point in trend.series.points
        if (lines := _without_commit(point.stack))
    }
    return sorted(changed.values(), key=lambda item: item[0].started_at, reverse=True)


def compact_json(groups: Sequence[Sequence[Trend]]) -> str:
    """The data of a page: of each group its nights once, and its series with a value for each night or null. It may
    stand in an HTML page: every `<`, `>` and `&` is written as JSON's escape."""
    text = json.dumps([_group(trends) for trends in groups], separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _group(trends: Sequence[Trend]) -> dict[str, Any]:
    points = {point.session: point for trend in reversed(trends) for point in trend.series.points}
    nights = sorted(points.values(), key=lambda point: (point.started_at, point.session))
    place_of = {point.session: place for place, point in enumerate(nights)}
    of_nights = [plain(point.host or "unknown host") for point in nights]
    hosts = list(dict.fromkeys(of_nights))
    times = [round(_seconds(point)) for point in nights]
    revisions = [plain(point.git_revision or "") for point in nights]
    return {
        "hosts": hosts,
        "nights": [
            [time - before, hosts.index(host), AS_BEFORE if new == old else new]
            for time, before, host, new, old in zip(
                times, [0, *times], of_nights, revisions, [None, *revisions], strict=False
            )
        ],
        "stack": [[place_of[point.session], lines] for point, lines in reversed(stacks(trends))],
        "series": [_series(trend, place_of) for trend in trends],
    }


def _series(trend: Trend, place_of: Mapping[str, int]) -> dict[str, Any]:
    places = [place_of[point.session] for point in trend.series.points]
    scale = number_text.scale(trend.series.unit, *(point.median for point in trend.series.points))
    values: list[float | None] = [None] * len(place_of)
    said = [NOTHING_SAID] * len(place_of)
    for night, point in zip(places, trend.series.points, strict=True):
        values[night] = float(f"{point.median:.{DIGITS}g}")
        said[night] = SIGNS.get(point.compared or "", NOTHING_SAID)
    return {
        "name": plain(trend.series.metric),
        "unit": plain(scale.name),
        "times": scale.factor,
        "values": values,
        "said": "".join(said),
        "levels": [[places[first], places[last], median] for first, last, median in trend.levels],
        "changes": [[places[change.index], change.percent, change.tone, change.says] for change in trend.changes],
        "accepted": [[places[place] for place in window] for window in trend.accepted],
    }
