"""Several sessions of one stack against several of another, as after a driver upgrade: K nights against K'.

A case's difference is (mean entry of B - mean entry of A), an entry being that of a session (verdict.observations). Its
variance is that between sessions, pooled over both sides about their own means, moderated over the cases:

    t = (difference - margin) / (s~ sqrt(1 / K + 1 / K'))        K + K' - 2 degrees of freedom, more when moderated

which is Student's two-sample test (1908) with the variance of Smyth (2004). Predicting one night more from the K would
be wrong here: K' nights average out what tonight alone cannot.

What a night does to all cases alike is taken out before variances are compared, as in verdict.suite_shift, and so is
the difference that all cases share while it is no larger than nights make it; where it is larger, the suite moved,
cases are judged as they stand, and the nights' own variance counts among their error.

Worked number: A (0, 1, 2) %, B (5, 6, 7) %: pooled variance 1 %^2 with 4 degrees, error sqrt(2 / 3) = 0.816 %; beyond
a margin of 1 %: t = (5 - 1) / 0.816 = 4.90, p = 0.0040.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from pytest_npubench.errors import MeasurementError
from pytest_npubench.stats.checks import BoolArray, FloatArray
from pytest_npubench.stats.margin_test import interval, one_sided_p
from pytest_npubench.verdict import Judged, Verdict, VerdictKind
from pytest_npubench.verdict.judging import statistics_failed
from pytest_npubench.verdict.observations import (
    Better,
    Rule,
    Scale,
    Session,
    UnusableError,
    session_entries,
)
from pytest_npubench.verdict.suite_shift import MEDIAN_EFFICIENCY, MIN_CASES, SuiteShift
from pytest_npubench.verdict.weighing import Weighed, difference_of
from pytest_npubench.verdict.wording import suite_verdicts, visible

MIN_SESSIONS = 3
Sessions = Mapping[str, Session]
Row = Mapping[str, float]  # session name -> entry


def judge_two_samples(
    old: Mapping[str, Sessions],
    new: Mapping[str, Sessions],
    *,
    margin: float = 0.01,
    q: float = 0.05,
    better: Better = "lower",
    scale: Scale = "ratio",
) -> Judged:
    """Verdicts of B against A for each case, judged jointly; old, new: case -> session name -> processes -> samples.

    Every case has MIN_SESSIONS or more on both sides. Verdicts as in `judge`: ratio is B / A. Raises ConfigError for a
    margin, q, better or scale that cannot be used; samples that cannot be used give `invalid`.
    """
    rule = Rule(margin=margin, q=q, better=better, scale=scale)
    entries, verdicts = _usable(old, new, rule)
    if not entries:
        return Judged(verdicts=verdicts)
    cases = tuple(entries)
    try:
        with np.errstate(all="raise", under="ignore"):
            weighed = weigh_two_samples(
                _matrix([entries[case][0] for case in cases]),
                _matrix([entries[case][1] for case in cases]),
                rule,
            )
            judged = [
                _worded(verdict, entries[case], rule) for case, verdict in zip(cases, weighed.verdicts(), strict=True)
            ]
    except (ArithmeticError, ValueError, MeasurementError) as error:  # an error in the statistics is no verdict
        return Judged(verdicts={**verdicts, **statistics_failed(cases, error)})
    verdicts |= zip(cases, judged, strict=True)
    ordered = {case: verdicts[case] for case in new}
    return Judged(verdicts=ordered, suites=suite_verdicts(weighed.shift, rule))


def _usable(
    old: Mapping[str, Sessions], new: Mapping[str, Sessions], rule: Rule
) -> tuple[dict[str, tuple[Row, Row]], dict[str, Verdict]]:
    entries: dict[str, tuple[Row, Row]] = {}
    verdicts: dict[str, Verdict] = {}
    for case in new:
        try:
            entries[case] = (_entries(old[case], rule), _entries(new[case], rule))
        except UnusableError as error:
            verdicts[case] = Verdict(kind=VerdictKind.INVALID, reason=str(error))
    return entries, verdicts


def _entries(sessions: Sessions, rule: Rule) -> Row:
    entries = {}
    for name, session in sessions.items():
        try:
            entries[name] = float(session_entries(session, rule.scale, rule.better).mean())
        except UnusableError as error:
            raise UnusableError(f"session {name}: {error}") from None
    return entries


def _matrix(rows: list[Row]) -> FloatArray:
    """Entries [C, K] with NaN where a session lacks the case; a session is one column in all rows."""
    places = {name: index for index, name in enumerate(dict.fromkeys(name for row in rows for name in row))}
    entries = np.full((len(rows), len(places)), np.nan)
    for number, row in enumerate(rows):
        for name, value in row.items():
            entries[number, places[name]] = value
    return entries


def weigh_two_samples(old: FloatArray, new: FloatArray, rule: Rule) -> Weighed:
    """Returns the evidence of entries [C, K] and [C, K'], a session a column, NaN for none."""
    margin = rule.entry(rule.margin)
    shift, shift_new, night_variance = _shared(old, new, margin)
    taken_off = shift is not None and not shift.moved
    inner_old, inner_new = old, new
    if shift is not None:
        inner_old = old - shift.nights
        inner_new = new - shift_new - (shift.tonight if taken_off else 0.0)
    num_old, num_new = (np.isfinite(side).sum(axis=1).astype(np.float64) for side in (old, new))
    freedom = num_old + num_new - 2
    difference = difference_of(
        np.nanmean(inner_new, axis=1) - np.nanmean(inner_old, axis=1),
        (_squares(inner_old) + _squares(inner_new)) / freedom,
        freedom,
        shared=0.0 if taken_off else night_variance,
        independent=shift is not None,
        num_old=num_old,
        num_new=num_new,
    )
    return Weighed(rule=rule, shift=shift, taken_off=taken_off, difference=difference)


def _shared(old: FloatArray, new: FloatArray, margin: float) -> tuple[SuiteShift | None, FloatArray, float]:
    """What all cases did alike: the difference of the sides with its test and the shifts of A's nights about their
    mean, the same of B's nights, and the variance of a night. None where cases or nights are too few to tell."""
    enough = [np.isfinite(side).sum(axis=0) >= MIN_CASES for side in (old, new)]
    num_old, num_new = (int(nights.sum()) for nights in enough)
    if min(num_old, num_new) < MIN_SESSIONS:
        return None, np.zeros(new.shape[1]), 0.0
    nights_old, nights_new = (_nights(side, which) for side, which in zip((old, new), enough, strict=True))
    freedom = num_old + num_new - 2
    variance = float((nights_old**2).sum() + (nights_new**2).sum()) / freedom
    rest = _squares(old - nights_old) + _squares(new - nights_new)
    rest /= np.isfinite(old).sum(axis=1) + np.isfinite(new).sum(axis=1) - 2
    # a median's own error is there even where no two nights differ
    variance = max(variance, MEDIAN_EFFICIENCY * float(np.median(rest)) / len(old))
    error = math.sqrt(variance * (1 / num_old + 1 / num_new))
    tonight = float(np.median(np.nanmean(new, axis=1) - np.nanmean(old, axis=1)))
    low, high = interval(tonight, error, freedom)
    shift = SuiteShift(
        nights=nights_old,
        tonight=tonight,
        slower_p=float(one_sided_p(tonight, margin, error, freedom)),
        faster_p=float(one_sided_p(-tonight, margin, error, freedom)),
        interval=(float(low), float(high)),
        num_cases=len(old),
    )
    return shift, nights_new, variance


def _nights(entries: FloatArray, enough: BoolArray) -> FloatArray:
    """Returns the shift of each night, [K], about their mean; 0 for a night with too few cases to tell."""
    level = np.nanmean(entries, axis=1, keepdims=True)
    nights = np.zeros(len(enough))
    nights[enough] = np.nanmedian((entries - level)[:, enough], axis=0)
    return np.where(enough, nights - nights[enough].mean(), 0.0)


def _squares(entries: FloatArray) -> FloatArray:
    """Sums of squares about each row's own mean, [C]."""
    return np.asarray(np.nansum((entries - np.nanmean(entries, axis=1, keepdims=True)) ** 2, axis=1))


def _worded(verdict: Verdict, entries: tuple[Row, Row], rule: Rule) -> Verdict:
    """Returns the verdict with its reason in words for two stacks: there is no accepted session here."""
    sessions = f"{len(entries[1])} sessions of B against {len(entries[0])} of A"
    if verdict.kind in (VerdictKind.REGRESSED, VerdictKind.IMPROVED):
        return replace(verdict, reason=f"{sessions}, margin {rule.margin:.2g}")
    return replace(verdict, reason=f"{sessions}, could have seen {visible(verdict.mde or 0)}")
