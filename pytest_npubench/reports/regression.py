"""One card for each case that fails: what changed by how much since when, tonight's samples over those of the accepted
sessions, the nights before, and what of the stack differs.

Worked example: accepted sessions of 10 ms and 12.3 ms tonight, x1.228 with the interval 1.2 to 1.26, are "12.3 ms, was
10 ms in 5 accepted sessions: +22.8 % (95 % +20.0 to +26.0 %), since 2026-11-20 02:15 UTC, 3 sessions".
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from pytest_npubench.comparison.change_origin import day_of
from pytest_npubench.comparison.earlier_nights import EarlierNights
from pytest_npubench.comparison.observation import Night
from pytest_npubench.errors import JournalError
from pytest_npubench.plain_text import counted
from pytest_npubench.reports import number_text
from pytest_npubench.reports.build import chart, line, marks, table
from pytest_npubench.reports.change_chart import Change, change_chart
from pytest_npubench.reports.overview import row_anchor
from pytest_npubench.reports.page import Chart, Learnt, RegressionCard
from pytest_npubench.reports.plot_parts import (
    GREY,
    RED,
    DrawnSeries,
    Shape,
    axis,
    is_far,
    level_axis,
    log_axis,
)
from pytest_npubench.reports.run_rows import judged_at, judged_level, quantile, run_rows
from pytest_npubench.store.accepted_session import AcceptedSession
from pytest_npubench.store.baselines import Baselines
from pytest_npubench.store.journal_reader import Journal
from pytest_npubench.verdict import FAILING, VerdictKind
from pytest_npubench.verdict.case_record import CaseRecord, Cases
from pytest_npubench.verdict.result import Metric
from pytest_npubench.verdict.wording import FACTOR

SHOWN = (VerdictKind.REGRESSED, VerdictKind.FAILED)
MAX_CARDS = 100
"""Each has two charts: of more failing cases the table alone tells."""
CURVE_POINTS = 80
MIN_FOR_CURVE = 5
MIN_NIGHTS = 2
MOST_PICTURED, MOST_CHANGES = 3, 12
"""On the first screen: failing cases with a picture, and metrics in the picture of all changes."""
DISTRIBUTIONS = (
    "Each curve has one area: where it is high, many samples lie. This session's samples are drawn over those of all "
    "accepted sessions; the dotted lines are the two medians. The gate judges a better quartile, the figure above."
)
NIGHTS = (
    "Median of each session in the order that they began, its quartiles as bars, and this one last; those in red were "
    "not accepted. A dotted line stands before the first session of the change, as far as these can tell."
)
CHANGED = (VerdictKind.REGRESSED, VerdictKind.IMPROVED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """What was measured of a case before: its accepted sessions under the key of tonight, the other nights under that
    key, and why accepted sessions of other keys do not count."""

    sessions: tuple[AcceptedSession, ...] = ()
    nights: tuple[Night, ...] = ()
    other_keys: tuple[str, ...] = ()

    def samples(self, metric: str) -> list[tuple[AcceptedSession, list[float]]]:
        return [
            (session, [value for process in session.metrics[metric].processes for value in process])
            for session in self.sessions
            if metric in session.metrics
        ]

    def over_time(self, metric: str) -> list[EarlierSession]:
        """All of them, in the order that they began."""
        sessions = [
            EarlierSession(began_at=one.began_at, name=one.session, samples=values, is_accepted=True)
            for one, values in self.samples(metric)
        ] + [
            EarlierSession(began_at=one.began_at, name=one.session, samples=values, is_accepted=False)
            for one in self.nights
            if one.seen.metric == metric and (values := [value for process in one.seen.processes for value in process])
        ]
        return sorted(sessions, key=lambda session: session.began_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierSession:
    """The samples of a metric in one session before tonight's."""

    began_at: datetime
    name: str
    samples: Sequence[float]
    is_accepted: bool


def before(record: CaseRecord[Any], journal: Journal, accepted: Baselines | None, nights: EarlierNights) -> Before:
    """Empty where no baselines are given or the journal does not tell what measured the case."""
    if accepted is None or not record.fingerprint:
        return Before()
    try:
        key = journal.fingerprint(record.fingerprint).key()
    except JournalError:
        return Before()
    histories = accepted.histories(record.key, key, digest=record.digest)
    sessions = tuple(session for one in histories for session in one if session.session != record.session)
    names = {session.session for session in sessions} | {record.session}
    return Before(
        sessions=sessions,
        nights=tuple(
            night
            for metric in record.judgement.metrics
            for night in nights.of(record.key, record.digest, metric.name, accepted.aliases)
            if night.session not in names and not night.stack.key().differences(key)
        ),
        other_keys=accepted.mismatches(record.key, key, digest=record.digest),
    )


def earlier_nights(cases: Cases, journal: Journal) -> EarlierNights:
    """The nights of a journal before the run of these cases; none where they cannot be read."""
    session_ids = {record.session for record in cases.records}
    runs = {session.run for session in journal.sessions if session.id in session_ids}
    try:
        return EarlierNights.read(journal, next(iter(runs), ""))
    except JournalError:
        return EarlierNights()


def failing_metrics(record: CaseRecord[Any]) -> list[Metric]:
    """The metrics that failed against accepted sessions; of a case that failed otherwise the first that has samples."""
    failed = [one for one in record.judgement.metrics if one.verdict is not None and one.verdict.kind in FAILING]
    return failed or [one for one in record.judgement.metrics if one.samples][:1]


def card(record: CaseRecord[Any], anchor: str, row: str, accepted: Before) -> RegressionCard:
    metrics = failing_metrics(record)
    return RegressionCard(
        anchor=anchor,
        row=row,
        title=record.key + record.shown_id.removeprefix(record.id),
        what=record.what,
        verdict=record.judgement.verdict.kind.value,
        reason=record.judgement.verdict.reason,
        changes=tuple(changed(metric, accepted, record.session) for metric in metrics),
        charts=tuple(drawn for one in metrics for drawn in _charts(one, accepted, record.session) if drawn is not None),
        stack=accepted.other_keys,
        num_sessions=len(accepted.sessions),
    )


def changed(metric: Metric, accepted: Before, tonight: str) -> str:
    """Says by how much a metric changed, against what, since when, and what change nobody minds. `tonight` is the
    session that measured it."""
    if metric.gate == "answers":
        return f"{metric.name}: {metric.verdict.reason if metric.verdict else number_text.plain(metric.value)}."
    old = accepted.samples(metric.name)
    level = judged_level(metric)
    was_at = [judged_at(session.metrics[metric.name].processes, level) for session, _ in old]
    judged = judged_at(metric.processes, level), statistics.median(was_at) if was_at else None
    now, earlier = number_text.figures(judged, metric.unit)
    number = f"{len(old)} accepted session{'' if len(old) == 1 else 's'}"
    was = f", was {earlier} in {number}" if old else ""
    return f"{metric.name} {now}{was}{_change(metric, _since(metric, accepted, tonight))}."


def _since(metric: Metric, accepted: Before, tonight: str) -> str:
    """Says in words which session was the first of the change, and how many there are since."""
    since = (metric.verdict and metric.verdict.since) or ""
    if since in ("", tonight):
        return ", since this session" if since else ""
    names = [session.name.partition("@")[0] for session in accepted.over_time(metric.name)]
    num_nights = len(names[names.index(since) :]) + 1 if since in names else 1
    return f", since {day_of(since)}, {counted(num_nights, 'session')}"


def _change(metric: Metric, since: str) -> str:
    verdict = metric.verdict
    if verdict is None or verdict.ratio is None:
        return since
    margin = f"{since}{'' if metric.margin is None else f'; a change up to {_size(metric)} does not matter'}"
    if metric.gate == "difference":
        ends = f" (95 % {verdict.interval[0]:+.3g} to {verdict.interval[1]:+.3g})" if verdict.interval else ""
        return f": {verdict.ratio:+.3g}{ends}{margin}"
    ends = ""
    if verdict.ratio > FACTOR:
        if verdict.interval:
            ends = " (95 % {} to {})".format(*(f"x{number_text.two_digits(end)}" for end in verdict.interval))
        return f": x{number_text.two_digits(verdict.ratio)}{ends}{margin}"
    if verdict.interval:
        low, high = (100 * (end - 1) for end in verdict.interval)
        ends = f" (95 % {low:+.1f} to {high:+.1f} %)"
    return f": {100 * (verdict.ratio - 1):+.1f} %{ends}{margin}"


def _size(metric: Metric) -> str:
    return f"{metric.margin:.3g}" if metric.gate == "difference" else f"{100 * (metric.margin or 0):.3g} %"


def _charts(metric: Metric, accepted: Before, tonight: str) -> tuple[Chart | None, ...]:
    if metric.gate == "answers":  # a vector scatters about nothing
        return ()
    samples = [value for process in metric.processes for value in process]
    shown_in = number_text.scale(metric.unit, quantile(samples, 0.5) if samples else None)
    factor, unit = shown_in.factor, shown_in.name
    new = [value * factor for value in samples]
    old = [value * factor for _, values in accepted.samples(metric.name) for value in values]
    nights = [
        replace(session, samples=[value * factor for value in session.samples])
        for session in accepted.over_time(metric.name)
    ]
    name = f"{metric.name}, {unit}" if unit else metric.name
    since = (metric.verdict and metric.verdict.since) or ""
    return _distributions(name, new, old), _nights(name, new, nights, since or tonight)


def _distributions(name: str, new: Sequence[float], old: Sequence[float]) -> Chart | None:
    if len(new) < MIN_FOR_CURVE:
        return None
    rows = [(called, values) for called, values in (("accepted sessions", old), ("this session", new)) if values]
    medians = [statistics.median(values) for _, values in rows]
    is_log = is_far(medians) and min(*new, *old) > 0
    low, high = _inner([*new, *old], is_log=is_log)
    series = [
        _curve(called, values, low, high, color, is_log=is_log)
        for (called, values), color in zip(rows, (GREY, RED)[-len(rows) :], strict=True)
        if len(values) >= MIN_FOR_CURVE
    ]
    return chart(
        f"Distribution of {name}",
        f"{name}: {'; '.join(f'median {number_text.plain(statistics.median(own))} {called}' for called, own in rows)}.",
        (DISTRIBUTIONS,),
        series,
        ((log_axis if is_log else axis)(name, span=(low, high)), axis("share of samples", from_zero=True)),
        table(
            f"Samples of {name}",
            (
                ("of", lambda row: row[0]),
                ("samples", lambda row: str(len(row[1]))),
                ("lowest", lambda row: number_text.plain(min(row[1]))),
                ("quartile", lambda row: number_text.plain(quantile(row[1], 0.25))),
                ("median", lambda row: number_text.plain(statistics.median(row[1]))),
                ("quartile", lambda row: number_text.plain(quantile(row[1], 0.75))),
                ("highest", lambda row: number_text.plain(max(row[1]))),
            ),
            rows,
        ),
        verticals=medians,
    )


def _curve(name: str, values: Sequence[float], low: float, high: float, color: str, *, is_log: bool) -> DrawnSeries:
    """A Gaussian kernel over the samples, its width after Silverman (Density Estimation, 1986, eq. 3.31); over their
    logarithms where the axis has these."""
    if is_log:
        drawn = _curve(name, [math.log(value) for value in values], math.log(low), math.log(high), color, is_log=False)
        return replace(drawn, x=[math.exp(place) for place in drawn.x if isinstance(place, float)])
    deviation = min(statistics.pstdev(values), (quantile(values, 0.75) - quantile(values, 0.25)) / 1.34 or math.inf)
    width = max(0.9 * deviation * len(values) ** -0.2, (high - low) / CURVE_POINTS)
    at = [low + (high - low) * index / (CURVE_POINTS - 1) for index in range(CURVE_POINTS)]
    heights = [math.fsum(math.exp(-0.5 * ((place - value) / width) ** 2) for value in values) for place in at]
    whole = math.fsum(heights) or 1.0
    shares = [height / whole for height in heights]
    return DrawnSeries(name=name, shape=Shape.AREA, x=at, y=shares, color=color, width=2)


def _nights(name: str, new: Sequence[float], earlier: Sequence[EarlierSession], since: str) -> Chart | None:
    """`since` names the first session of the change."""
    if len(earlier) < MIN_NIGHTS:
        return None
    medians = [statistics.median(session.samples) for session in earlier]
    every = [*medians, statistics.median(new)]
    names = [session.name.partition("@")[0] for session in earlier]
    last = len(earlier) + 1
    first = names.index(since) + 1 if since in names else last
    rows = [*((day_of(one.name), one.samples) for one in earlier), ("this session", list(new))]
    return chart(
        f"{name} over the sessions",
        f"{name}: median of {len(earlier)} sessions from {number_text.plain(min(medians))} to "
        f"{number_text.plain(max(medians))}; {number_text.plain(every[-1])} in this one.",
        (NIGHTS,),
        [
            *(
                replace(
                    line(
                        called,
                        [place for place, one in enumerate(earlier, start=1) if one.is_accepted is is_accepted],
                        [statistics.median(one.samples) for one in shown],
                        "",
                        color=color,
                        symbol="circle",
                        size=6,
                        ends=[(quantile(one.samples, 0.25), quantile(one.samples, 0.75)) for one in shown],
                    ),
                    says=[f"{day_of(one.name)}: {number_text.plain(statistics.median(one.samples))}" for one in shown],
                )
                for called, is_accepted, color in (("accepted", True, GREY), ("not accepted", False, RED))
                if (shown := [one for one in earlier if one.is_accepted is is_accepted])
            ),
            marks("this session", [last], [every[-1]], "{y:.4g}", color=RED, symbol="diamond", size=10),
        ],
        (axis("session", span=(0.5, last + 0.5)), level_axis(name, every)),
        table(
            f"{name} by session",
            (
                ("session", lambda row: row[0]),
                ("samples", lambda row: str(len(row[1]))),
                ("median", lambda row: number_text.plain(statistics.median(row[1]))),
            ),
            rows,
        ),
        verticals=[first - 0.5],
    )


def _inner(values: Sequence[float], *, is_log: bool) -> tuple[float, float]:
    """Spans the 1st to the 99th percentile and a tenth more: one stray sample does not squeeze the curves. What is
    never below 0 has no curve there."""
    low, high = quantile(values, 0.01), quantile(values, 0.99)
    if is_log:
        return low / 1.5, high * 1.5
    room = (high - low) * 0.15 or abs(low) * 0.05 or 1.0
    return low - room if min(values) < 0 else max(low - room, 0.0), high + room


def cards(cases: Cases, journal: Journal, accepted: Baselines | None) -> tuple[RegressionCard, ...]:
    """Makes cards of the first MAX_CARDS of these that fail; one that could not be measured has nothing to show."""
    failing = [(place, one) for place, one in enumerate(cases.records) if one.judgement.verdict.kind in SHOWN]
    nights = earlier_nights(cases, journal) if failing else EarlierNights()
    return tuple(
        card(one, f"card-{number}", row_anchor(place), before(one, journal, accepted, nights))
        for number, (place, one) in enumerate(failing[:MAX_CARDS], start=1)
    )


def pictured(cases: Cases, shown: Sequence[RegressionCard]) -> tuple[Learnt, ...]:
    """The pictures of the first screen where something changed: all changes in one, then of each of the first failing
    cases its last chart, which says since when where it has nights."""
    changes = [
        Change(name=f"{row.name} {metric.name}", kind=one.kind, ratio=one.ratio, interval=one.interval)
        for row in run_rows(cases)
        for metric in row.record.judgement.metrics
        if (one := metric.verdict) is not None and one.ratio is not None and metric.gate != "difference"
    ]
    num_changed = sum(change.kind in CHANGED for change in changes)
    drawn = change_chart(changes, "What changed", "this session / accepted sessions", MOST_CHANGES)
    overall: tuple[Learnt, ...] = ()
    if drawn is not None and num_changed and len(changes) > 1:
        furthest = number_text.change(max(changes, key=lambda change: change.size).ratio - 1)
        answer = f"{num_changed} of {len(changes)} compared metrics changed; the furthest off has {furthest}"
        overall = (Learnt(chart=replace(drawn, answer=answer), campaign="all cases", anchor="cases"),)
    return overall + tuple(
        Learnt(chart=replace(one.charts[-1], answer=one.title), campaign=one.what, anchor=one.anchor)
        for one in shown[:MOST_PICTURED]
        if one.charts
    )
