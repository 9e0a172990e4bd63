"""The upgrade gate: what changed from side A to side B, told apart as what the device, the suite and each case did, and
what models answer.

Canaries are judged among themselves, all other metrics family by family, as in a nightly run. With 3 sessions or more
on either side a metric is judged by its two samples of nights (two_samples); with fewer in B as a run is judged against
its baseline: each process of B's sessions counts as a process of that run. Below 3 sessions in A there is no baseline.
Answers of models need no statistics: the newest of B against the newest of A.

Cases that time several choices have the throughput of each, relative to all (stats.ranking.relative_throughputs): where
the best choice moved, the comparison says so. Worked example: batch 4 at 1.10 and batch 8 at 0.95 before, 0.98 and 1.06
after: the best was batch 4 and is batch 8; settled where either moved by more than chance.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from pytest_npubench.comparison.members import Common, ComparedMetric, common
from pytest_npubench.comparison.observation import CANARY, Observation, is_canary, judge_alone
from pytest_npubench.comparison.other_answers import (
    answer_distances,
    campaigns_with_other_answers,
    is_of_answers,
    other_answers,
)
from pytest_npubench.comparison.outcome import MOVED, Comparison, Described, Row, canary_verdict, moved_with
from pytest_npubench.comparison.sides import Side
from pytest_npubench.comparison.stack_changes import stack_changes
from pytest_npubench.comparison.two_samples import MIN_SESSIONS, judge_two_samples
from pytest_npubench.errors import ConfigError
from pytest_npubench.plain_text import counted
from pytest_npubench.stats.ranking import RELATIVE_THROUGHPUT
from pytest_npubench.verdict import Judged, Verdict, VerdictKind, judge_jointly
from pytest_npubench.verdict.answers import together
from pytest_npubench.verdict.observations import Rule, Session, UnusableError, session_entries
from pytest_npubench.verdict.result import OF_ANSWERS, STATISTICAL
from pytest_npubench.verdict.spread import spread_alarms

Members = Mapping[str, ComparedMetric]
JudgeFamily = Callable[[Members, float, float], Iterable[Judged]]


def compare_sides(
    old: Side, new: Side, *, margin: float = 0.01, q: float = 0.05, metrics: Collection[str] = ()
) -> Comparison:
    """`new` held against `old`.

    Raises ConfigError where a side is empty, nothing is on both, or margin or q is wrong.
    """
    for name, side in (("A", old), ("B", new)):
        if not side.sessions:
            why = f" ({'; '.join(side.notes)})" if side.notes else ""
            raise ConfigError(f"{name}, {side.label}: no finished session with cases{why}")
    return weigh(old, new, common(old.sessions, new.sessions, metrics), judge_sessions, margin, q)


def weigh(old: Side, new: Side, common: Common, judge: JudgeFamily, margin: float, q: float) -> Comparison:
    """Compares the common metrics, each family by `judge`."""
    families: dict[tuple[str, ...], dict[str, ComparedMetric]] = {}
    for member in common.members:
        families.setdefault(member.family, {})[" ".join(member.key)] = member
    judged_rows = [Row(definition=definition, verdict=verdict) for definition, verdict in common.incomparable]
    suites: list[tuple[str, Verdict]] = []
    together: list[tuple[str, Verdict]] = []  # what many canaries have in common
    for family, members in families.items():
        definition = next(iter(members.values())).definition
        own_margin = margin if definition.margin is None else definition.margin
        for judged in _judged(members, judge, own_margin, q):
            of_canaries = family[0] == CANARY
            suite = None if of_canaries else judged.suite
            judged_rows += [
                _row(members[name], verdict, suite, own_margin) for name, verdict in judged.verdicts.items()
            ]
            if judged.suite is not None:
                (together if of_canaries else suites).append((family[3], _plainly(judged.suite)))
    canaries = [row for row in judged_rows if is_canary(row.definition.case)]
    answers = [row for row in judged_rows if is_of_answers(row.definition)]
    others = campaigns_with_other_answers((row.definition, row.verdict) for row in answers)
    rows = [
        replace(row, other_answers=other_answers(row.definition, row.verdict, others))
        for row in judged_rows
        if not (is_canary(row.definition.case) or is_of_answers(row.definition))
    ]
    return Comparison(
        old=_described(old),
        new=_described(new),
        stack=stack_changes(old.sessions, new.sessions),
        canary=canary_verdict(canaries, [verdict for _, verdict in together]),
        canaries=tuple(canaries),
        answers=tuple(answers),
        suites=tuple(suites),
        rows=tuple(rows),
        only_old=common.only_old,
        only_new=common.only_new,
        notes=tuple(dict.fromkeys((*old.notes, *new.notes, *moved_optima(rows)))),
    )


def _described(side: Side) -> Described:
    began = sorted(session.started_at for session in side.sessions)
    return Described(label=side.label, num_sessions=len(began), first_at=began[0], last_at=began[-1])


def _judged(members: Members, judge: JudgeFamily, margin: float, q: float) -> Iterable[Judged]:
    if next(iter(members.values())).definition.gate in STATISTICAL:
        return [_with_spread(members, judged) for judged in judge(members, margin, q)]
    verdicts = {
        name: _plainly(judge_alone(_now(member), list(member.old.values()))) for name, member in members.items()
    }
    return [Judged(verdicts=verdicts)]


def _with_spread(members: Members, judged: Judged) -> Judged:
    """Regressed also where the median or the tail of the samples is far worse in more than half of B's sessions."""
    definition = next(iter(members.values())).definition
    if definition.gate != "ratio":
        return judged
    accepted = {name: list(members[name].old.values()) for name in judged.verdicts}
    alarms: dict[str, list[str]] = {}
    for session in dict.fromkeys(session for name in accepted for session in members[name].new):
        current = {name: members[name].new[session] for name in accepted if session in members[name].new}
        for name, alarm in spread_alarms(accepted, current, definition.better).items():
            alarms.setdefault(name, []).append(alarm)
    verdicts = dict(judged.verdicts)
    for name, reasons in alarms.items():
        if 2 * len(reasons) > len(members[name].new) and not verdicts[name].failing:
            # without the better quartile's figures, which do not tell it
            reason = f"{reasons[-1]}; its better quartile: {verdicts[name].reason}"
            verdicts[name] = _plainly(Verdict(kind=VerdictKind.REGRESSED, reason=reason))
    return replace(judged, verdicts=verdicts)


def _now(member: ComparedMetric) -> Observation:
    """What B's sessions measured of a metric that needs no statistics; of answers the newest."""
    sessions = list(member.new.values())
    chosen = sessions[-1:] if member.definition.gate in OF_ANSWERS else sessions
    return replace(member.definition, processes=tuple(map(tuple, flat(chosen))))


def judge_sessions(members: Members, margin: float, q: float) -> Iterable[Judged]:
    """Members of one family, by as much as each has on either side."""
    few = {name: member for name, member in members.items() if len(member.old) < MIN_SESSIONS}
    first = next(iter(members.values()))
    rest = members.keys() - few.keys()
    several = {name: members[name] for name in members if name in rest and len(members[name].new) >= MIN_SESSIONS}
    single = {name: members[name] for name in members if name in rest and name not in several}
    if few:
        yield Judged(verdicts={name: _no_baseline(member) for name, member in few.items()})
    if several:
        yield judge_two_samples(
            {name: member.old for name, member in several.items()},
            {name: member.new for name, member in several.items()},
            margin=margin,
            q=q,
            better=first.definition.better,
            scale=first.scale,
        )
    if single:
        yield _worded(
            judge_jointly(
                {name: member.old for name, member in single.items()},
                {name: flat(member.new.values()) for name, member in single.items()},
                rules=Rule(margin=margin, q=q, better=first.definition.better, scale=first.scale),
            )
        )


def flat(sessions: Iterable[Session]) -> list[Sequence[float]]:
    """Returns the processes of several sessions as those of one."""
    return [samples for session in sessions for samples in session]


def _worded(judged: Judged) -> Judged:
    verdicts = {name: _plainly(verdict) for name, verdict in judged.verdicts.items()}
    return replace(judged, verdicts=verdicts)


def _plainly(verdict: Verdict) -> Verdict:
    """Words the verdict for sessions of A, which nobody accepted."""
    return replace(verdict, reason=verdict.reason.replace("the accepted ", "A's ").replace("accepted ", ""))


def _no_baseline(member: ComparedMetric) -> Verdict:
    reason = f"{counted(len(member.old), 'session')} in A; want {MIN_SESSIONS} or more"
    return Verdict(kind=VerdictKind.NO_BASELINE, reason=reason)


def _row(member: ComparedMetric, verdict: Verdict, suite: Verdict | None, margin: float) -> Row:
    with_suite = moved_with(suite, verdict, member.definition, margin)
    if with_suite:
        verdict = replace(verdict, reason=f"{verdict.reason}; moved with the suite")
    before, after = _levels(member, verdict)
    return Row(definition=member.definition, verdict=verdict, before=before, after=after, with_suite=with_suite)


def _levels(member: ComparedMetric, verdict: Verdict) -> tuple[float | None, float | None]:
    """Returns the levels of A and B. Two vectors of answers have none: B has their distance."""
    old, new = list(member.old.values()), list(member.new.values())
    if member.definition.gate == "answers":
        apart = answer_distances(_now(member), old)
        return None, together(apart) if apart else None
    if member.definition.gate in OF_ANSWERS:
        return _level(member, old[-1:]), _level(member, new[-1:])
    before = _level(member, old)
    return before, _moved(member, before, verdict)


def _level(member: ComparedMetric, sessions: Iterable[Session]) -> float | None:
    """Returns these sessions' level in the judgement: the mean of their entries, as a value; None where one has none.

    Worked example: better quartiles of 10 and 10.2 ms are a level of 10.1 ms, whatever the medians are.
    """
    definition, scale = member.definition, member.scale
    if definition.gate not in STATISTICAL:
        return statistics.median(value for session in sessions for samples in session for value in samples)
    try:
        entries = [session_entries(session, scale, definition.better).mean() for session in sessions]
    except UnusableError:
        return None
    middle = -statistics.fmean(entries) if definition.better == "higher" else statistics.fmean(entries)
    return math.exp(middle) if scale == "ratio" else middle


def _moved(member: ComparedMetric, before: float | None, verdict: Verdict) -> float | None:
    """B's level: A's, changed by what was judged, so that the two and the change beside them agree. Where nothing was
    judged, that of B's sessions."""
    if before is None or verdict.ratio is None:
        return _level(member, member.new.values())
    return before + verdict.ratio if member.definition.gate == "difference" else before * verdict.ratio


def moved_optima(rows: Iterable[Row]) -> tuple[str, ...]:
    """Returns a sentence for each case whose best choice is another one."""
    by_case: dict[str, list[Row]] = {}
    for row in rows:
        if row.definition.metric.startswith(f"{RELATIVE_THROUGHPUT}/") and None not in (row.before, row.after):
            by_case.setdefault(row.definition.case, []).append(row)
    return tuple(text for case, choices in by_case.items() if (text := _optimum_move(case, choices)))


def _optimum_move(case: str, rows: Sequence[Row]) -> str:
    was, now = max(rows, key=lambda row: row.before or 0.0), max(rows, key=lambda row: row.after or 0.0)
    if was is now:
        return ""
    settled = was.kind in MOVED or now.kind in MOVED
    chance = "" if settled else ", though neither moved by more than chance"
    return f"{case}: the best choice was {_choice(was)} and is {_choice(now)}{chance}"


def _choice(row: Row) -> str:
    return row.definition.metric.removeprefix(f"{RELATIVE_THROUGHPUT}/")
