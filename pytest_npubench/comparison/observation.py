"""What is compared: one metric of one case with the samples of its processes, out of a journal's case record.

All metrics of a run that scatter are judged at once, as one family with one budget of false alarms, against the
sessions that were accepted and the nights since.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any, Literal

from pytest_npubench.errors import JournalError
from pytest_npubench.store.accepted_session import AcceptedSession, Quantity, is_ahead
from pytest_npubench.store.baselines import Baselines
from pytest_npubench.store.fingerprint import Fingerprint, FingerprintKey
from pytest_npubench.store.waiting import baselines_option
from pytest_npubench.verdict import FAILING, JUDGED, Verdict, VerdictKind, judge_jointly
from pytest_npubench.verdict.case_record import metrics_of, prompts_of
from pytest_npubench.verdict.observations import MIN_SESSIONS, Rule, Session
from pytest_npubench.verdict.result import OF_ANSWERS, STATISTICAL, UNKNOWN_PROMPTS, AskedPrompts, GateKind, Metric

Key = tuple[str, str]
CANARY = "canary"
CHANGED = frozenset({VerdictKind.REGRESSED, VerdictKind.IMPROVED})
NamedSessions = Mapping[str, Session]
NUM_PENDING = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """processes: processes x samples in `unit`. `key` tells it among all metrics of all cases.

    is_disturbed: something else used the device for part of that night, so that it is no evidence beside other nights.
    """

    case: str
    digest: str
    metric: str
    unit: str
    better: Literal["lower", "higher"]
    gate: GateKind
    margin: float | None
    processes: tuple[tuple[float, ...], ...]
    is_disturbed: bool = False
    prompts: AskedPrompts = UNKNOWN_PROMPTS

    @property
    def key(self) -> Key:
        return self.case, self.metric

    @property
    def family(self) -> tuple[str, ...]:
        """What a night does to all alike is looked for among metrics of one unit that are held to one margin in one
        way; without a unit, of one name.

        Canaries are kept apart: kernels of milliseconds jump more than whole models do, and they are to say what the
        other cases have in common.
        """
        margin = "" if self.margin is None else f"{self.margin:g}"
        return CANARY if is_canary(self.case) else "", self.gate, self.better, self.unit or self.metric, margin

    def rule(self, margin: float) -> Rule:
        """How it is judged; `margin` is the run's. Its group is the family in words, such as "s, margin 0.1"."""
        canary, gate, better, unit, margin_of_case = self.family
        parts = (
            f"{unit} of canary kernels" if canary else unit,
            "" if better == "lower" else "higher is better",
            "by difference" if gate == "difference" else "",
            f"margin {margin_of_case}" if margin_of_case else "",
        )
        return Rule(
            margin=margin if self.margin is None else self.margin,
            better=self.better,
            scale="difference" if self.gate == "difference" else "ratio",
            group=", ".join(filter(None, parts)),
        )

    @classmethod
    def of_metric(
        cls, case: str, digest: str, metric: Metric, *, is_disturbed: bool = False, detail: object = None
    ) -> Observation:
        """`detail` is the case's, as a record or as plain data. Raises ValueError where it cannot be read."""
        return cls(
            case=case,
            digest=digest,
            metric=metric.name,
            unit=metric.unit,
            better=metric.better,
            gate=metric.gate,
            margin=metric.margin,
            processes=metric.processes,
            is_disturbed=is_disturbed,
            prompts=prompts_of(detail if metric.gate == "answers" else None),
        )


def is_canary(case: str) -> bool:
    return case.split("/")[1:2] == [CANARY]


def of_record(record: Mapping[str, Any]) -> Iterator[Observation]:
    """Yields the metrics of a journal's case record that are compared. Raises JournalError for what it cannot read."""
    is_disturbed = record.get("is_partly_disturbed") is True
    try:
        for metric in metrics_of(record.get("metrics", {})):
            if metric.gate != "none":
                about = record["case"], record["digest"], metric
                yield Observation.of_metric(*about, is_disturbed=is_disturbed, detail=record.get("detail"))
    except ValueError as error:
        raise JournalError(f"case record {record.get('case')!r}: metrics that cannot be read: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """A metric as an earlier session measured it, and what was said of it then. `since` is the session at which it had
    changed for the worse or the better, None where it was as before."""

    seen: Observation
    session: str
    began_at: datetime
    stack: Fingerprint
    kind: VerdictKind
    since: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What a metric of a case is held against. `sessions` are those accepted, by name, `pending` those that were
    measured after them and not accepted, both oldest first; `gone` those of changes that went; `stacks` what measured
    nights of either. `changed` is the newest night where the metric is known to have changed by then.

    `instead` is the verdict where there is nothing to compare with and the reason is known; `stack` says in what
    another stack differs that the sessions were accepted under.
    """

    sessions: NamedSessions = field(default_factory=dict)
    pending: NamedSessions = field(default_factory=dict)
    gone: NamedSessions = field(default_factory=dict)
    stacks: Mapping[str, Fingerprint] = field(default_factory=dict)
    changed: Night | None = None
    instead: Verdict | None = None
    stack: tuple[str, ...] = ()

    @property
    def since(self) -> str | None:
        """Returns the first session, accepted or pending, of the change that is there still."""
        if self.changed is None or self.changed.since is None:
            return None
        names, begin = [*self.sessions, *self.pending], self.changed.since
        return begin if begin in names else next((name for name in names if name >= begin), None)

    @property
    def before_change(self) -> History:
        """Returns the accepted sessions alone, up to that change."""
        names = list(self.sessions)
        end = names.index(self.since) if self.since in names else len(names)
        return History(sessions={name: self.sessions[name] for name in names[:end]})


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Verdicts by (case, metric), the cases with a suspicious metric, and what all metrics of a group did alike."""

    verdicts: Mapping[Key, Verdict]
    suspects: tuple[str, ...]
    suites: Mapping[str, Verdict]


def judge_observations(
    observations: Iterable[Observation],
    histories: Mapping[Key, History],
    *,
    margin: float = 0.01,
    lent: Iterable[Observation] = (),
    num_judged: int | None = None,
) -> Findings:
    """All metrics that scatter are one family, whatever their unit; the others are judged each by itself.

    `lent` are metrics that are not judged here: what is accepted of them tells how nights of this suite differ.
    num_judged: how many metrics the whole run judges. Raises ConfigError for a margin that cannot be used.
    """
    verdicts: dict[Key, Verdict] = {}
    family: dict[str, Observation] = {}
    for observation in observations:
        history = histories.get(observation.key, History())
        if history.instead is not None:
            verdicts[observation.key] = history.instead
        elif observation.gate in STATISTICAL:
            family["\n".join(observation.key)] = observation
        elif observation.gate != "none":
            verdict = judge_alone(observation, list(history.sessions.values()))
            under = f"; accepted under another stack: {', '.join(history.stack)}" if history.stack else ""
            verdicts[observation.key] = replace(verdict, reason=f"{verdict.reason}{under}")
    if not family:
        return Findings(verdicts=verdicts, suspects=(), suites={})
    every = {"\n".join(one.key): one for one in lent} | family
    of = {name: histories.get(one.key, History()) for name, one in every.items()}
    judged = judge_jointly(
        {name: history.sessions for name, history in of.items()},
        {name: observation.processes for name, observation in family.items()},
        rules={name: one.rule(margin) for name, one in every.items()},
        pending={name: history.pending for name, history in of.items()},
        gone={name: history.gone for name, history in of.items()},
        since={name: history.since for name, history in of.items() if history.since is not None},
        num_judged=num_judged,
        disturbed=[name for name, one in family.items() if one.is_disturbed],
    )
    verdicts |= {family[name].key: _still_red(verdict, of[name]) for name, verdict in judged.verdicts.items()}
    suspects = dict.fromkeys(family[name].case for name in judged.suspects)
    for key, verdict in _with_spread(family.values(), histories, verdicts).items():
        verdicts[key] = verdict
        suspects[key[0]] = None
    return Findings(verdicts=verdicts, suspects=tuple(suspects), suites=judged.suites)


def _still_red(verdict: Verdict, history: History) -> Verdict:
    """A regressed metric stays so where too few accepted sessions are left to tell whether the regression went."""
    was = history.changed
    if verdict.kind is not VerdictKind.NO_BASELINE or was is None or was.kind is not VerdictKind.REGRESSED:
        return verdict
    reason = f"still regressed, and nothing can show that it went: {verdict.reason}"
    return replace(verdict, kind=VerdictKind.REGRESSED, reason=reason, since=history.since)


def judge_alone(observation: Observation, sessions: Sequence[Session]) -> Verdict:
    """Returns the verdict of a metric that needs no statistics, by itself; sessions oldest first."""
    if observation.gate == "exact":
        from pytest_npubench.verdict.exact import judge_exact

        return judge_exact(sessions, observation.processes, better=observation.better, margin=observation.margin)
    from pytest_npubench.verdict.answers import judge_accuracy, judge_answers, judge_identical

    now, then = observation.processes[0], sessions[-1][0] if sessions else None
    if observation.gate == "answers":
        return judge_answers(now, then, observation.margin or 0.0, observation.prompts)
    judge = judge_accuracy if observation.gate == "accuracy" else judge_identical
    return judge(now[0], then[0] if then else None)


def _with_spread(
    family: Iterable[Observation], histories: Mapping[Key, History], verdicts: Mapping[Key, Verdict]
) -> dict[Key, Verdict]:
    """Returns the verdicts of metrics whose samples tell something beside their better quartile. What fresh processes
    by themselves do not show is in doubt."""
    from pytest_npubench.verdict.spread import spread_alarms

    groups: dict[str, dict[str, Observation]] = {}
    for observation in family:
        if observation.gate == "ratio":
            groups.setdefault(observation.rule(0.0).group, {})["\n".join(observation.key)] = observation
    alarmed: dict[Key, Verdict] = {}
    for members in groups.values():
        accepted = {name: list(histories.get(each.key, History()).sessions.values()) for name, each in members.items()}
        better = next(iter(members.values())).better
        together = {name: each.processes for name, each in members.items()}
        alone = {name: each.processes[1:] or each.processes for name, each in members.items()}
        confirmed = spread_alarms(accepted, alone, better)
        for name, alarm in spread_alarms(accepted, together, better).items():
            key = members[name].key
            alarmed[key] = _alarmed(verdicts[key], alarm, is_confirmed=name in confirmed)
    return alarmed


def _alarmed(verdict: Verdict, alarm: str, *, is_confirmed: bool) -> Verdict:
    """Regressed also where the better quartile did not move, or is as before again: then it is not gone."""
    if verdict.kind in FAILING:
        return verdict
    is_back = verdict.since is not None and verdict.kind not in CHANGED
    quartile = verdict.reason.partition("; ")[2] if is_confirmed and is_back else verdict.reason
    reason = f"{alarm}; its better quartile: {quartile}"
    if is_confirmed:
        return replace(verdict, kind=VerdictKind.REGRESSED, reason=reason)
    return replace(
        verdict, kind=VerdictKind.INCONCLUSIVE, reason=f"{reason}; not confirmed: fresh processes do not show it"
    )


def accepted_history(
    baselines: Baselines,
    observation: Observation,
    key: FingerprintKey,
    across: Collection[str] = (),
    nights: Sequence[Night] = (),
) -> History:
    """What the baselines hold for a metric of a case, and of the `nights` before this one, oldest first, those that
    have a say beside it.

    Of what a model answers, which a stack is not to change, the newest session under another stack stands in where this
    one has none. Incomparable where sessions were accepted, but under another key, of another definition of the case or
    of another quantity, or by a clock that ran ahead: the reason says which. Raises ConfigError where `across` names no
    part of the key.
    """
    case, metric, digest = observation.case, observation.metric, observation.digest
    by_key = baselines.histories(case, key, digest=digest, across=across)
    sessions = [session for one in by_key for session in one if metric in session.metrics]
    if not sessions:
        if observation.gate in OF_ANSWERS and (other := baselines.under_other_stack(case, metric, key, digest=digest)):
            return History(sessions=_samples(other[:1], metric), stack=other[1])
        return History(instead=_why_incomparable(baselines, observation, key, across))
    quantity = baselines.quantity(case, metric, key, digest=digest, across=across)
    if quantity is not None and (changes := quantity_changes(quantity, observation)):
        return History(instead=another_quantity(changes))
    if observation.gate not in STATISTICAL:
        return History(sessions=_samples(sessions, metric))
    if ahead := [session.session for session in sessions if is_ahead(session.began_at)]:
        return History(instead=_from_the_future(ahead, baselines))
    reset = baselines.reset_of(case, key)
    usable = [
        night
        for night in nights
        if (reset is None or night.began_at >= reset.time)
        and not night.stack.key().differences(key, across)
        and not quantity_changes(night.seen, observation)
        and not baselines.is_rejected(night.session)
    ]
    return _over_nights(sorted(sessions, key=lambda session: session.began_at), metric, usable)


def _over_nights(accepted: Sequence[AcceptedSession], metric: str, nights: Sequence[Night]) -> History:
    """What was measured while the metric was regressed is no reference and no night before this one, also where it was
    accepted while that was in doubt, unless a person let it in. Neither is a night that was disturbed in part, unless
    fewer than MIN_SESSIONS accepted ones were not."""
    names = {session.session for session in accepted}
    quiet = [session for session in accepted if not session.is_disturbed]
    accepted = quiet if len(quiet) >= MIN_SESSIONS else accepted
    nights = [night for night in nights if not night.seen.is_disturbed]
    began = {session.session: session.began_at for session in accepted} | {one.session: one.began_at for one in nights}
    judged = [night for night in nights if night.kind in JUDGED]
    changed = judged[-1] if judged and judged[-1].since and judged[-1].session not in names else None
    stretches = [
        (began.get(night.since, night.began_at), night.began_at, night.kind is VerdictKind.IMPROVED)
        for night in judged
        if night.since and night.session not in names
    ]
    begin = None if changed is None or changed.since is None else began.get(changed.since, changed.began_at)
    ended = [stretch for stretch in stretches if begin is None or stretch[1] < begin]
    went = [(first, last) for first, last, _ in ended]
    red = [(first, last) for first, last, is_better in ended if not is_better]
    left = [one for one in accepted if one.reason or not _is_within(one.began_at, red)]
    gone = {night.session: night.seen.processes for night in nights if _is_within(night.began_at, went)}
    after = min(accepted[-1].began_at, begin or accepted[-1].began_at)
    pending = {
        night.session: night.seen.processes
        for night in nights
        if night.session not in {*names, *gone} and night.began_at >= after
    }
    newest = list(pending)[-NUM_PENDING:]
    kept = {session.session for session in left}
    return History(
        sessions=_samples(left, metric),
        pending={name: pending[name] for name in newest},
        gone={name: samples for name, samples in gone.items() if name not in kept},
        stacks={night.session: night.stack for night in nights},
        changed=changed,
    )


def _is_within(moment: datetime, stretches: Iterable[tuple[datetime, datetime]]) -> bool:
    return any(first <= moment <= last for first, last in stretches)


def _from_the_future(sessions: Sequence[str], baselines: Baselines) -> Verdict:
    reason = (
        f"the accepted session {sessions[0]} began in the future by this machine's clock, which says "
        f"{datetime.now(timezone.utc):%Y-%m-%d}: set the clock, or npubench baseline reject {sessions[0]}"
        f"{baselines_option(baselines.directory)}"
    )
    return Verdict(kind=VerdictKind.INCOMPARABLE, reason=reason)


def quantity_changes(old: Quantity | Observation, new: Observation) -> tuple[str, ...]:
    """Names what makes a metric another quantity than before, such as "unit s -> ms"."""
    parts = ((name, getattr(old, name) or "none", getattr(new, name) or "none") for name in ("unit", "better", "gate"))
    return tuple(f"{name} {before} -> {after}" for name, before, after in parts if before != after)


def another_quantity(changes: Iterable[str]) -> Verdict:
    reason = f"another quantity than before: {', '.join(changes)}; numbers of the two are not compared"
    return Verdict(kind=VerdictKind.INCOMPARABLE, reason=reason)


def _why_incomparable(
    baselines: Baselines, observation: Observation, key: FingerprintKey, across: Collection[str]
) -> Verdict | None:
    reasons = baselines.mismatches(observation.case, key, digest=observation.digest, across=across)
    if not reasons:
        return None
    return Verdict(kind=VerdictKind.INCOMPARABLE, reason=f"accepted under another key: {'; or '.join(reasons)}")


def _samples(sessions: Collection[AcceptedSession], metric: str) -> NamedSessions:
    return {session.session: session.metrics[metric].processes for session in sessions}
