"""The gate: cases against their accepted sessions, judged jointly.

judge(baseline, current)["case"].kind is one of

    no-baseline    fewer than 3 accepted sessions: never a pass by default
    regressed      worse by more than the margin: a night that is too unlikely, or evidence of several nights
    improved       better by more than the margin, likewise
    unchanged      a change beyond 3 % either way is ruled out
    inconclusive   none of these: it says what it could have seen
    invalid        tonight's samples cannot be used

How a case stands: verdict.standing, by verdict.tonight from one night (verdict.prediction) and over nights
(verdict.evidence); simulated false alarms and delays: docs/statistics.md. Give all cases of a run together: they share
one budget of false alarms and lend each other what each knows too little of.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from pytest_npubench.errors import MeasurementError
from pytest_npubench.verdict import Verdict, VerdictKind, wording
from pytest_npubench.verdict.night_table import CaseNights, make_table, split
from pytest_npubench.verdict.observations import (
    MIN_SESSIONS,
    Better,
    CaseEntries,
    Rule,
    Session,
    Sessions,
    read_cases,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Verdicts by case, the cases that deserve a second look, and for each group what its cases did alike: a verdict
    by the name of the group (Rule.group), for groups that are large enough to tell."""

    verdicts: Mapping[str, Verdict]
    suspects: tuple[str, ...] = ()
    suites: Mapping[str, Verdict] = field(default_factory=dict)

    @property
    def suite(self) -> Verdict | None:
        """Returns the suite's verdict where all cases are of one group."""
        return next(iter(self.suites.values()), None)


def judge(
    baseline: Mapping[str, Sessions],
    current: Mapping[str, Session],
    *,
    margin: float = 0.01,
    better: Better = "lower",
) -> dict[str, Verdict]:
    """Verdicts of the cases in `current` against their accepted sessions, judged jointly.

    baseline: case -> sessions, oldest first (or session name -> session, which tells the gate which cases share a
    night); a session is a list of processes, a process a list of samples in any one unit. current: case -> processes
    of this run. margin is the fraction of change that nobody minds. better says whether lower or higher values are. A
    case missing from baseline has no sessions.

    Verdict.ratio is current / baseline, of the nights since the change where one was found, interval its 95 % interval,
    mde the smallest fraction of change for the worse that one night shows in 4 of 5; what a night did to all cases
    alike is not in them where the reason says that it is subtracted. Raises ConfigError for a margin or better that
    cannot be used; samples that cannot be used never raise: they give `invalid` (current) or `inconclusive` (baseline).
    """
    return dict(judge_jointly(baseline, current, rules=Rule(margin=margin, better=better)).verdicts)


def judge_jointly(
    baseline: Mapping[str, Sessions],
    current: Mapping[str, Session],
    *,
    rules: Mapping[str, Rule] | Rule,
    pending: Mapping[str, Sessions] | None = None,
    since: Mapping[str, str] | None = None,
    gone: Mapping[str, Sessions] | None = None,
    num_judged: int | None = None,
    disturbed: Collection[str] = (),
) -> Judged:
    """All judged metrics of a run at once, one family with one budget of false alarms; as `judge`, with more told.

    rules: that of each case, or one for all. A case of `baseline` that is not in `current` lends its nights to the
    noise law and is not judged; it needs a rule as well. Only cases of one group share the shift of a night.
    current: where a case has more than one process, the further ones are those of the second look, and a value that
    they do not show by themselves is no regression of one night.

    pending: case -> sessions measured after the accepted ones and not accepted, by name, oldest first. They are no
    reference, but nights at which a change may have begun. Nights of a change that went do not belong here but in
    `gone`: case -> those sessions by name. They are no reference either, and tell a case that runs at two speeds.
    since: case -> session since which the case is regressed or improved, as its last verdict said. No session from
    that one on is a reference, whether accepted or pending.
    num_judged: how many metrics the whole run judges, where this call sees a part of them only.
    disturbed: cases for part of whose measuring tonight something else used the device. They are judged by this night
    alone, and are no evidence over nights; how such a case stood the night before, it stands tonight. Earlier nights of
    that kind do not belong into baseline or pending.

    A verdict `regressed` or `improved` has `since`, the session of its most likely first night ("tonight" for this
    one), and `num_nights`, the nights measured from then on. Any other verdict with a `since` says that the change of
    that session is gone: it was there the night before, and tonight is as before it again.
    """
    named = {case: rules if isinstance(rules, Rule) else rules[case] for case in _rated(baseline, current, rules)}
    entries = read_cases(named, baseline, pending or {}, gone or {}, current)
    verdicts = {case: verdict for case in current if (verdict := _without_weighing(entries[case]))}
    split_cases = [
        split(case, found, (since or {}).get(case), is_disturbed=case in disturbed)
        for case, found in entries.items()
        if case not in verdicts
    ]
    nights = {case.case: case for case in split_cases if len(case.reference) >= MIN_SESSIONS}
    verdicts |= {case.case: _no_reference(case) for case in split_cases if case.case not in nights}
    weighable = [case for case in current if case in nights]
    number = len(weighable) if num_judged is None else max(num_judged, len(weighable))
    suspects: set[str] = set()
    suites: dict[str, Verdict] = {}
    for scale in dict.fromkeys(named[case].scale for case in weighable):
        members = [case for case in nights.values() if case.rule.scale == scale]
        try:
            judged = _weigh(members, number)
        except (ArithmeticError, ValueError, MeasurementError) as error:  # an error in the statistics is no verdict
            judged = Judged(verdicts=statistics_failed((case.case for case in members), error))
        verdicts |= judged.verdicts
        suspects.update(judged.suspects)
        suites |= judged.suites
    return Judged(
        verdicts={case: verdicts[case] for case in current},
        suspects=tuple(case for case in current if case in suspects),
        suites=suites,
    )


def _rated(baseline: Iterable[str], current: Iterable[str], rules: Mapping[str, Rule] | Rule) -> dict[str, None]:
    """Returns the cases of tonight, and those that lend their nights: of which a rule is known."""
    lenders = baseline if isinstance(rules, Rule) else (case for case in baseline if case in rules)
    return dict.fromkeys([*current, *lenders])


def _without_weighing(case: CaseEntries) -> Verdict | None:
    """Returns the verdict of a case that cannot be weighed."""
    if isinstance(case.current, str):
        return Verdict(kind=VerdictKind.INVALID, reason=case.current)
    for index, entries in enumerate(case.accepted.values(), start=1):
        if isinstance(entries, str):
            reason = f"accepted session {index} of {len(case.accepted)}: {entries}"
            return Verdict(kind=VerdictKind.INCONCLUSIVE, reason=reason)
    if len(case.accepted) < MIN_SESSIONS:
        return Verdict(kind=VerdictKind.NO_BASELINE, reason=wording.too_few(len(case.accepted), MIN_SESSIONS))
    return None


def _no_reference(case: CaseNights) -> Verdict:
    reason = f"{wording.too_few(len(case.reference), MIN_SESSIONS)} before {case.since}, when it changed"
    return Verdict(kind=VerdictKind.NO_BASELINE, reason=reason)


def statistics_failed(cases: Iterable[str], error: Exception) -> dict[str, Verdict]:
    """An error in the statistics is inconclusive: never a pass, never a failure."""
    failed = Verdict(kind=VerdictKind.INCONCLUSIVE, reason=f"the statistics failed: {error}")
    return dict.fromkeys(cases, failed)


def _weigh(cases: Sequence[CaseNights], num_judged: int) -> Judged:
    """Returns the verdicts of cases of one scale, those without a process tonight left out."""
    # with these come the statistics, which first nights do without
    from pytest_npubench.verdict.standing import verdict_of
    from pytest_npubench.verdict.tonight import Tonight

    with np.errstate(all="raise", under="ignore"):
        tonight = Tonight(table=make_table(cases), num_judged=num_judged)
        rows = [row for row, case in enumerate(cases) if case.current is not None]
        verdicts = {cases[row].case: verdict_of(tonight, row) for row in rows}
        suspects = tuple(cases[row].case for row in rows if tonight.suspects[row])
    suites: dict[str, Verdict] = {}
    for row in rows:
        suites |= wording.suite_verdicts(tonight.table.shift_of(row), cases[row].rule)
    return Judged(verdicts=verdicts, suspects=suspects, suites=suites)
