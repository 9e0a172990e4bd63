"""The gate: cases against their accepted sessions, judged jointly.

judge(baseline, current)["case"].kind is one of

    no-baseline    fewer than 3 accepted sessions: never a pass by default
    regressed      worse by more than the margin: Benjamini-Hochberg over the cases given, at level q
    improved       better by more than the margin, likewise
    unchanged      a change beyond 3 % either way is ruled out (TOST)
    inconclusive   none of these: it says what it could have detected
    invalid        tonight's samples cannot be used

How the evidence is weighed: verdict.evidence; simulated false alarms and power: docs/statistics.md. Give the cases of
one suite and one kind of metric together: they lend each other what each knows too little of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from pytest_npubench.errors import MeasurementError
from pytest_npubench.stats.checks import FloatArray
from pytest_npubench.verdict import wording
from pytest_npubench.verdict.creep import creep_p
from pytest_npubench.verdict.evidence import night_shift, without_shift, worse
from pytest_npubench.verdict.kinds import Verdict, VerdictKind
from pytest_npubench.verdict.observations import (
    Better,
    Scale,
    Session,
    Sessions,
    Table,
    UnusableError,
    make_table,
    session_entries,
    session_list,
)
from pytest_npubench.verdict.rule import Rule
from pytest_npubench.verdict.weighing import Weighed

MIN_SESSIONS = 3
SUSPECT_LEVEL = 0.10


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Verdicts by case, the cases that deserve a second look, and the suite's own verdict where there is one."""

    verdicts: Mapping[str, Verdict]
    suspects: tuple[str, ...]
    suite: Verdict | None


def judge(
    baseline: Mapping[str, Sessions],
    current: Mapping[str, Session],
    *,
    margin: float = 0.01,
    q: float = 0.05,
    better: Better = "lower",
) -> dict[str, Verdict]:
    """Verdicts of the cases in `current` against their accepted sessions, judged jointly.

    baseline: case -> sessions, oldest first (or session name -> session, which tells the gate which cases share a
    night); a session is a list of processes, a process a list of samples in any one unit. current: case -> processes
    of this run. margin is the fraction of change that nobody minds, q the share of false alarms among the alarms.
    better says whether lower or higher values are. A case missing from baseline has no sessions.

    Verdict.ratio is current / baseline, interval its 95 % interval, mde the smallest fraction of change for the worse
    that this gate finds in 4 of 5 runs. Raises ConfigError for a margin, q or better that cannot be used; samples that
    cannot be used never raise: they give `invalid` (current) or `inconclusive` (baseline).
    """
    return dict(judge_jointly(baseline, current, margin=margin, q=q, better=better).verdicts)


def judge_jointly(
    baseline: Mapping[str, Sessions],
    current: Mapping[str, Session],
    *,
    margin: float = 0.01,
    q: float = 0.05,
    better: Better = "lower",
    scale: Scale = "ratio",
    anchor: Mapping[str, Sessions] | None = None,
) -> Judged:
    """As `judge`, with the suspects to measure again and the verdict of the suite as a whole.

    On the scale "difference" margin, ratio, interval and mde are differences of the values themselves: for fractions
    and errors. `anchor` holds sessions of long ago, which creep cannot have reached: a case that is worse than they are
    is regressed too.
    """
    rule = Rule(margin=margin, q=q, better=better, scale=scale)
    verdicts, usable = _sorted_out(baseline, current, rule)
    if not usable:
        return Judged(verdicts=verdicts, suspects=(), suite=None)
    chosen = {case: current[case] for case in usable}
    try:
        with np.errstate(all="raise", under="ignore"):
            table = make_table(baseline, chosen, scale, better)
            found = _weigh(table, rule, _anchor_entries(table, anchor or {}, rule))
    except (ArithmeticError, ValueError, MeasurementError) as error:  # an error in the statistics is no verdict
        return Judged(verdicts={**verdicts, **statistics_failed(usable, error)}, suspects=(), suite=None)
    ordered = {case: {**verdicts, **found.verdicts}[case] for case in current}
    return Judged(verdicts=ordered, suspects=found.suspects, suite=found.suite)


def _sorted_out(
    baseline: Mapping[str, Sessions], current: Mapping[str, Session], rule: Rule
) -> tuple[dict[str, Verdict], list[str]]:
    """The verdicts of cases that cannot be weighed, and the other cases."""
    verdicts: dict[str, Verdict] = {}
    for case, session in current.items():
        sessions = session_list(baseline.get(case, ()))
        if reason := _unusable(session, rule):
            verdicts[case] = Verdict(kind=VerdictKind.INVALID, reason=reason)
        elif len(sessions) < MIN_SESSIONS:
            verdicts[case] = Verdict(kind=VerdictKind.NO_BASELINE, reason=wording.too_few(len(sessions), MIN_SESSIONS))
        elif bad := [(index, why) for index, item in enumerate(sessions) if (why := _unusable(item, rule))]:
            reason = f"accepted session {bad[0][0]} of {len(sessions)}: {bad[0][1]}"
            verdicts[case] = Verdict(kind=VerdictKind.INCONCLUSIVE, reason=reason)
    return verdicts, [case for case in current if case not in verdicts]


def _unusable(session: Session, rule: Rule) -> str:
    try:
        session_entries(session, rule.scale, rule.better)
    except UnusableError as error:
        return str(error)
    except (TypeError, ValueError):
        return "want a list of processes, each a list of numbers"
    return ""


def statistics_failed(cases: Iterable[str], error: Exception) -> dict[str, Verdict]:
    """An error in the statistics is inconclusive: never a pass, never a failure."""
    failed = Verdict(kind=VerdictKind.INCONCLUSIVE, reason=f"the statistics failed: {error}")
    return dict.fromkeys(cases, failed)


def _weigh(table: Table, rule: Rule, anchor: FloatArray) -> Judged:
    weighed = weigh(table, rule, anchor)
    verdicts = dict(zip(table.cases, weighed.verdicts(), strict=True))
    suspect = (weighed.slower.p < SUSPECT_LEVEL) | (weighed.creep_p < SUSPECT_LEVEL)
    suspects = tuple(case for case, is_suspect in zip(table.cases, suspect, strict=True) if is_suspect)
    return Judged(verdicts=verdicts, suspects=suspects, suite=wording.suite_verdict(weighed.shift, rule))


def weigh(table: Table, rule: Rule, anchor: FloatArray | None = None) -> Weighed:
    """The evidence of a table whose cases all have 3 sessions or more; anchor: entries [C, A]."""
    margin = rule.entry(rule.margin)
    shift = night_shift(table, margin)
    inner = without_shift(table, shift)
    taken_off = inner is not table
    anchor = np.empty((len(table.cases), 0)) if anchor is None else anchor
    crept, creep = creep_p(inner, anchor, margin, float(shift.nights.var()) if shift else 0.0)
    return Weighed(
        table=table,
        rule=rule,
        shift=shift,
        taken_off=taken_off,
        slower=worse(inner, margin, independent=taken_off),
        faster=worse(inner.mirrored(), margin, independent=taken_off),
        creep_p=crept,
        creep=creep,
    )


def _anchor_entries(table: Table, anchor: Mapping[str, Sessions], rule: Rule) -> FloatArray:
    """Entries of the anchor sessions, [C, A]. Raises UnusableError."""
    rows = [
        [session_entries(session, rule.scale, rule.better).mean() for session in session_list(anchor.get(case, ()))]
        for case in table.cases
    ]
    entries = np.full((len(rows), max(map(len, rows), default=0)), np.nan)
    for row, values in enumerate(rows):
        entries[row, : len(values)] = values
    return entries
