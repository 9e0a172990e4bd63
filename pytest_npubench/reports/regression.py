"""One card for each case that fails: what changed by how much, tonight's samples over those of the accepted sessions,
the nights before, and what of the stack differs.

Worked example: accepted sessions of 10 ms and 12.3 ms tonight, x1.228 with the interval 1.2 to 1.26, are "12.3 ms, was
10 ms in 5 accepted sessions: +22.8 % (95 % +20.0 to +26.0 %)".
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pytest_npubench.errors import JournalError
from pytest_npubench.reports import number_text
from pytest_npubench.reports.build import chart, line, marks, table
from pytest_npubench.reports.overview import row_anchor
from pytest_npubench.reports.page import Chart, RegressionCard
from pytest_npubench.reports.plot_parts import GREY, RED, DrawnSeries, Shape, axis
from pytest_npubench.reports.run_rows import judged_at, judged_level, quantile
from pytest_npubench.store.accepted_session import AcceptedSession
from pytest_npubench.store.baselines import Baselines
from pytest_npubench.store.history.change_points import change_points
from pytest_npubench.store.journal_reader import Journal
from pytest_npubench.verdict import FAILING, VerdictKind
from pytest_npubench.verdict.case_record import CaseRecord
from pytest_npubench.verdict.result import Metric

SHOWN = (VerdictKind.REGRESSED, VerdictKind.FAILED)
MAX_CARDS = 100
"""Each has two charts: of more failing cases the table alone tells."""
CURVE_POINTS = 80
MIN_FOR_CURVE = 5
MIN_NIGHTS = 2
DISTRIBUTIONS = (
    "Each curve has one area: where it is high, many samples lie. Tonight's samples are drawn over those of all "
    "accepted sessions; the dotted lines are the two medians. The gate judges a better quartile, the figure above."
)
NIGHTS = (
    "Median of each accepted session in the order accepted, its quartiles as bars, and tonight last. A dotted line "
    "stands where the level changed for good, as far as these nights can tell."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """What was accepted for a case: its sessions under the key of tonight, and why those of other keys do not count."""

    sessions: tuple[AcceptedSession, ...] = ()
    other_keys: tuple[str, ...] = ()

    def samples(self, metric: str) -> list[tuple[AcceptedSession, list[float]]]:
        return [
            (session, [value for process in session.metrics[metric].processes for value in process])
            for session in self.sessions
            if metric in session.metrics
        ]


def before(record: CaseRecord[Any], journal: Journal, accepted: Baselines | None) -> Before:
    """Empty where no baselines are given or the journal does not tell what measured the case."""
    if accepted is None or not record.fingerprint:
        return Before()
    try:
        key = journal.fingerprint(record.fingerprint).key()
    except JournalError:
        return Before()
    histories = accepted.histories(record.key, key, digest=record.digest)
    return Before(
        sessions=tuple(session for one in histories for session in one if session.session != record.session),
        other_keys=accepted.mismatches(record.key, key, digest=record.digest),
    )


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
        changes=tuple(changed(metric, accepted) for metric in metrics),
        charts=tuple(drawn for metric in metrics for drawn in _charts(metric, accepted) if drawn is not None),
        stack=accepted.other_keys,
        num_sessions=len(accepted.sessions),
    )


def changed(metric: Metric, accepted: Before) -> str:
    """Says by how much a metric changed, against what, and what change nobody minds."""
    if metric.gate == "answers":
        return f"{metric.name}: {metric.verdict.reason if metric.verdict else number_text.plain(metric.value)}."
    old = accepted.samples(metric.name)
    level = judged_level(metric)
    was_at = [judged_at(session.metrics[metric.name].processes, level) for session, _ in old]
    judged = judged_at(metric.processes, level), statistics.median(was_at) if was_at else None
    tonight, earlier = number_text.figures(judged, metric.unit)
    number = f"{len(old)} accepted session{'' if len(old) == 1 else 's'}"
    was = f", was {earlier} in {number}" if old else ""
    return f"{metric.name} {tonight}{was}{_change(metric)}."


def _change(metric: Metric) -> str:
    verdict = metric.verdict
    if verdict is None or verdict.ratio is None:
        return ""
    margin = "" if metric.margin is None else f"; a change up to {_size(metric)} does not matter"
    if metric.gate == "difference":
        ends = f" (95 % {verdict.interval[0]:+.3g} to {verdict.interval[1]:+.3g})" if verdict.interval else ""
        return f": {verdict.ratio:+.3g}{ends}{margin}"
    ends = ""
    if verdict.interval:
        low, high = (100 * (end - 1) for end in verdict.interval)
        ends = f" (95 % {low:+.1f} to {high:+.1f} %)"
    return f": {100 * (verdict.ratio - 1):+.1f} %{ends}{margin}"


def _size(metric: Metric) -> str:
    return f"{metric.margin:.3g}" if metric.gate == "difference" else f"{100 * (metric.margin or 0):.3g} %"


def _charts(metric: Metric, accepted: Before) -> tuple[Chart | None, ...]:
    if metric.gate == "answers":  # a vector scatters about nothing
        return ()
    samples = [value for process in metric.processes for value in process]
    time_in = number_text.time_unit(quantile(samples, 0.5) if samples else None)
    factor, unit = (time_in.per_s, time_in.name) if metric.unit == "s" else (1.0, metric.unit)
    new = [value * factor for value in samples]
    old = [(session, [value * factor for value in values]) for session, values in accepted.samples(metric.name)]
    name = f"{metric.name}, {unit}" if unit else metric.name
    return _distributions(name, new, [value for _, values in old for value in values]), _nights(name, new, old)


def _distributions(name: str, new: Sequence[float], old: Sequence[float]) -> Chart | None:
    if len(new) < MIN_FOR_CURVE:
        return None
    low, high = _inner([*new, *old])
    series = [
        _curve(called, values, low, high, color)
        for called, values, color in (("accepted sessions", old, GREY), ("tonight", new, RED))
        if len(values) >= MIN_FOR_CURVE
    ]
    rows = [(called, values) for called, values in (("accepted sessions", old), ("tonight", new)) if values]
    return chart(
        f"Distribution of {name}",
        f"{name}: {'; '.join(f'median {number_text.plain(statistics.median(own))} {called}' for called, own in rows)}.",
        (DISTRIBUTIONS,),
        series,
        (axis(name, span=(low, high)), axis("share of samples", from_zero=True)),
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
        verticals=[statistics.median(values) for _, values in rows],
    )


def _curve(name: str, values: Sequence[float], low: float, high: float, color: str) -> DrawnSeries:
    """A Gaussian kernel over the samples, its width after Silverman (Density Estimation, 1986, eq. 3.31)."""
    deviation = min(statistics.pstdev(values), (quantile(values, 0.75) - quantile(values, 0.25)) / 1.34 or math.inf)
    width = max(0.9 * deviation * len(values) ** -0.2, (high - low) / CURVE_POINTS)
    at = [low + (high - low) * index / (CURVE_POINTS - 1) for index in range(CURVE_POINTS)]
    heights = [math.fsum(math.exp(-0.5 * ((place - value) / width) ** 2) for value in values) for place in at]
    whole = math.fsum(heights) or 1.0
    shares = [height / whole for height in heights]
    return DrawnSeries(name=name, shape=Shape.AREA, x=at, y=shares, color=color, width=2)


def _nights(name: str, new: Sequence[float], old: Sequence[tuple[AcceptedSession, Sequence[float]]]) -> Chart | None:
    if len(old) < MIN_NIGHTS:
        return None
    nights = [(session.accepted_at[:10], values) for session, values in old]
    medians = [statistics.median(values) for _, values in nights]
    every = [*medians, statistics.median(new)]
    begins = change_points([math.log(one) for one in every]) if min(every) > 0 else ()
    last = len(nights) + 1
    rows = [*nights, ("tonight", list(new))]
    return chart(
        f"{name} over the nights",
        f"{name}: median of {len(nights)} accepted sessions from {number_text.plain(min(medians))} to "
        f"{number_text.plain(max(medians))}; {number_text.plain(every[-1])} tonight.",
        (NIGHTS,),
        [
            line(
                "accepted sessions",
                list(range(1, last)),
                medians,
                "session {x}: {y:.4g}",
                color=GREY,
                symbol="circle",
                size=6,
                ends=[(quantile(values, 0.25), quantile(values, 0.75)) for _, values in nights],
            ),
            marks("tonight", [last], [every[-1]], "{y:.4g}", color=RED, symbol="diamond", size=10),
        ],
        (axis("accepted session", span=(0.5, last + 0.5)), axis(name)),
        table(
            f"{name} by night",
            (
                ("night", lambda row: row[0]),
                ("samples", lambda row: str(len(row[1]))),
                ("median", lambda row: number_text.plain(statistics.median(row[1]))),
            ),
            rows,
        ),
        verticals=[begin + 0.5 for begin in begins],
    )


def _inner(values: Sequence[float]) -> tuple[float, float]:
    """Spans the 1st to the 99th percentile and a tenth more: one stray sample does not squeeze the curves."""
    low, high = quantile(values, 0.01), quantile(values, 0.99)
    room = (high - low) * 0.15 or abs(low) * 0.05 or 1.0
    return low - room, high + room


def cards(
    records: Sequence[CaseRecord[Any]], journal: Journal, accepted: Baselines | None
) -> tuple[RegressionCard, ...]:
    """Makes cards of the first MAX_CARDS of these that fail; one that could not be measured has nothing to show."""
    failing = [(place, one) for place, one in enumerate(records) if one.judgement.verdict.kind in SHOWN]
    return tuple(
        card(one, f"card-{number}", row_anchor(place), before(one, journal, accepted))
        for number, (place, one) in enumerate(failing[:MAX_CARDS], start=1)
    )
