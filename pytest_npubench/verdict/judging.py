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
from dataclasses import dataclass, replace

import numpy as np

from pytest_npubench.errors import MeasurementError
from pytest_npubench.verdict import Verdict, VerdictKind, wording
from pytest_npubench.verdict.observations import (
    Better,
    CaseEntries,
    Rule,
    Scale,
    Session,
    Sessions,
    anchor_entries,
    make_table,
    read_cases,
)

MIN_SESSIONS = 3


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
    that this gate finds in 4 of 5 runs; what a night did to all cases alike is not in them where the reason says that
    it is taken off. Raises ConfigError for a margin, q or better that cannot be used; samples that
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
    cases = read_cases(baseline, current, anchor or {}, scale, better)
    verdicts = {case: verdict for case, found in cases.items() if (verdict := _without_weighing(found))}
    weighable = {case: found for case, found in cases.items() if case not in verdicts}
    try:
        judged = _weigh(weighable, rule)
    except (ArithmeticError, ValueError, MeasurementError) as error:  # an error in the statistics is no verdict
        judged = Judged(verdicts=statistics_failed(weighable, error), suspects=(), suite=None)
    verdicts |= judged.verdicts
    return replace(judged, verdicts={case: verdicts[case] for case in current})


def _without_weighing(case: CaseEntries) -> Verdict | None:
    """The verdict of a case that cannot be weighed."""
    if isinstance(case.current, str):
        return Verdict(kind=VerdictKind.INVALID, reason=case.current)
    for what, sessions in (("accepted", case.sessions.values()), ("anchor", case.anchor)):
        for index, found in enumerate(sessions):
            if isinstance(found, str):
                reason = f"{what} session {index} of {len(sessions)}: {found}"
                return Verdict(kind=VerdictKind.INCONCLUSIVE, reason=reason)
    if len(case.sessions) < MIN_SESSIONS:
        return Verdict(kind=VerdictKind.NO_BASELINE, reason=wording.too_few(len(case.sessions), MIN_SESSIONS))
    return None


def statistics_failed(cases: Iterable[str], error: Exception) -> dict[str, Verdict]:
    """An error in the statistics is inconclusive: never a pass, never a failure."""
    failed = Verdict(kind=VerdictKind.INCONCLUSIVE, reason=f"the statistics failed: {error}")
    return dict.fromkeys(cases, failed)


def _weigh(cases: Mapping[str, CaseEntries], rule: Rule) -> Judged:
    if not cases:
        return Judged(verdicts={}, suspects=(), suite=None)
    from pytest_npubench.verdict.weighing import weigh  # with it come the statistics, which first nights do without

    with np.errstate(all="raise", under="ignore"):
        table = make_table(cases)
        weighed = weigh(table, rule, anchor_entries(cases))
        verdicts = dict(zip(table.cases, weighed.verdicts(), strict=True))
    suspects = tuple(case for case, suspect in zip(table.cases, weighed.suspect, strict=True) if suspect)
    return Judged(verdicts=verdicts, suspects=suspects, suite=wording.suite_verdict(weighed.shift, rule))
