"""What is compared: one metric of one case with the samples of its processes, out of a journal's case record.

Many metrics of many cases are judged at once: family by family, each jointly, against sessions that were accepted.

A family is what the gate may take together: metrics of one unit and direction (TTFT, TBT and end-to-end times of all
cases), of one campaign or suite.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from pytest_npubench.errors import JournalError
from pytest_npubench.store.accepted_session import NUM_WINDOW_SESSIONS, AcceptedSession, Quantity
from pytest_npubench.store.baselines import Baselines
from pytest_npubench.store.fingerprint import FingerprintKey
from pytest_npubench.verdict import FAILING, Judged, Verdict, VerdictKind, judge_jointly
from pytest_npubench.verdict.observations import Rule, Session
from pytest_npubench.verdict.result import OF_ANSWERS, STATISTICAL, GateKind, Metric

Key = tuple[str, str]
CANARY = "canary"
GATES = frozenset(get_args(GateKind))


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """processes: processes x samples in `unit`. `key` tells it among all metrics of all cases.

    `gate` is None where an old baseline or history does not say how the metric is judged.
    """

    case: str
    digest: str
    metric: str
    unit: str
    better: Literal["lower", "higher"]
    gate: GateKind | None
    margin: float | None
    processes: tuple[tuple[float, ...], ...]

    @property
    def key(self) -> Key:
        return self.case, self.metric

    @property
    def is_canary(self) -> bool:
        return is_canary(self.case)

    @property
    def family(self) -> tuple[str, ...]:
        """What is judged jointly: metrics of one unit, held to one margin in one way; without a unit, of one name.

        Canaries are kept apart: kernels of milliseconds jump more than whole models do, and they are to say what the
        other cases have in common.
        """
        margin = "" if self.margin is None else f"{self.margin:g}"
        return CANARY if self.is_canary else "", self.gate or "", self.better, self.unit or self.metric, margin

    @classmethod
    def of_metric(cls, case: str, digest: str, metric: Metric) -> Observation:
        return cls(
            case=case,
            digest=digest,
            metric=metric.name,
            unit=metric.unit,
            better=metric.better,
            gate=metric.gate,
            margin=metric.margin,
            processes=metric.processes,
        )


def is_canary(case: str) -> bool:
    return case.split("/")[1:2] == [CANARY]


def of_record(record: Mapping[str, Any]) -> Iterator[Observation]:
    """The metrics of a journal's case record that are compared. Raises JournalError where it cannot be read.

    A record from before metrics had gates is judged by ratio.
    """
    try:
        for name, entry in record.get("metrics", {}).items():
            samples = tuple(entry["samples"]) or (entry["value"],)
            observation = Observation(
                case=record["case"],
                digest=record["digest"],
                metric=name,
                unit=entry["unit"],
                better=entry["better"],
                gate=entry.get("gate", "ratio"),
                margin=entry.get("margin"),
                processes=tuple(tuple(values) for values in entry.get("processes", (samples,))),
            )
            if observation.gate not in GATES or observation.better not in ("lower", "higher"):
                raise TypeError(f"{name}: gate {observation.gate!r}, better {observation.better!r}")
            if observation.gate != "none":
                yield observation
    except (AttributeError, KeyError, TypeError) as error:
        raise JournalError(f"case record {record.get('case')!r}: metrics that cannot be read: {error!r}") from None


MIN_ANCHOR_SESSIONS = 3
NamedSessions = Mapping[str, Session]


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Accepted sessions of one metric of one case by name, oldest first; `anchor` those of long ago.

    `instead` is the verdict where there is nothing to compare with and the reason is known; `stack` says in what
    another stack differs that the sessions were accepted under.
    """

    sessions: NamedSessions = field(default_factory=dict)
    anchor: NamedSessions = field(default_factory=dict)
    instead: Verdict | None = None
    stack: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Verdicts by (case, metric), the cases with a suspicious metric, and the verdict of each family as a whole."""

    verdicts: Mapping[Key, Verdict]
    suspects: tuple[str, ...]
    suites: Mapping[str, Verdict]


def judge_families(
    observations: Iterable[Observation],
    histories: Mapping[Key, History],
    *,
    margin: float = 0.01,
    q: float = 0.05,
) -> Findings:
    """Raises ConfigError for a margin or q that cannot be used."""
    verdicts: dict[Key, Verdict] = {}
    families: dict[tuple[str, ...], dict[Key, Observation]] = {}
    for observation in observations:
        history = histories.get(observation.key, History())
        if history.instead is not None:
            verdicts[observation.key] = history.instead
        elif observation.gate in STATISTICAL:
            families.setdefault(observation.family, {})[observation.key] = observation
        elif observation.gate != "none":
            verdict = judge_alone(observation, list(history.sessions.values()))
            under = f"; accepted under another stack: {', '.join(history.stack)}" if history.stack else ""
            verdicts[observation.key] = replace(verdict, reason=f"{verdict.reason}{under}")
    suspects: dict[str, None] = {}
    suites: dict[str, Verdict] = {}
    for family, members in families.items():
        judged = _judge(members, histories, margin, q)
        keys = dict(zip(map(_name, members), members, strict=True))
        verdicts |= {keys[name]: verdict for name, verdict in judged.verdicts.items()}
        suspects.update(dict.fromkeys(keys[name][0] for name in judged.suspects))
        for key, alarm in _spread_alarms(members, histories).items():
            verdicts[key] = _with_alarm(verdicts[key], alarm)
            suspects[key[0]] = None
        if judged.suite is not None:
            suites[_title(family, families)] = judged.suite
    return Findings(verdicts=verdicts, suspects=tuple(suspects), suites=suites)


def judge_alone(observation: Observation, sessions: Sequence[Session]) -> Verdict:
    """The verdict of a metric that needs no statistics, by itself; sessions oldest first."""
    if observation.gate == "exact":
        from pytest_npubench.verdict.exact import judge_exact

        return judge_exact(sessions, observation.processes, better=observation.better, margin=observation.margin)
    from pytest_npubench.verdict.answers import judge_accuracy, judge_answers, judge_identical

    now, then = observation.processes[0], sessions[-1][0] if sessions else None
    if observation.gate == "answers":
        return judge_answers(now, then, observation.margin or 0.0)
    judge = judge_accuracy if observation.gate == "accuracy" else judge_identical
    return judge(now[0], then[0] if then else None)


def answer_distance(observation: Observation, sessions: Sequence[Session]) -> float | None:
    """How far the vector of answers is from that of the newest session; None where the metric is no such vector, or
    the two cannot be compared."""
    from pytest_npubench.verdict.answers import distance

    now = observation.processes[0]
    if observation.gate != "answers" or not sessions or len(sessions[-1][0]) != len(now):
        return None
    return distance(now, sessions[-1][0])


def _judge(members: Mapping[Key, Observation], histories: Mapping[Key, History], margin: float, q: float) -> Judged:
    one = next(iter(members.values()))
    found = {key: histories.get(key, History()) for key in members}
    return judge_jointly(
        {_name(key): {**history.anchor, **history.sessions} for key, history in found.items()},
        {_name(key): observation.processes for key, observation in members.items()},
        rules=Rule(
            margin=margin if one.margin is None else one.margin,
            q=q,
            better=one.better,
            scale="difference" if one.gate == "difference" else "ratio",
        ),
    )


def _spread_alarms(members: Mapping[Key, Observation], histories: Mapping[Key, History]) -> dict[Key, str]:
    """What the samples of times and rates tell beside their better quartile."""
    from pytest_npubench.verdict.spread import spread_alarms

    one = next(iter(members.values()))
    if one.gate not in ("ratio", None):
        return {}
    accepted = {_name(key): list(histories.get(key, History()).sessions.values()) for key in members}
    alarms = spread_alarms(accepted, {_name(key): found.processes for key, found in members.items()}, one.better)
    return {key: alarms[_name(key)] for key in members if _name(key) in alarms}


def _with_alarm(verdict: Verdict, alarm: str) -> Verdict:
    """Regressed also where the better quartile did not move."""
    reason = f"{alarm}; its better quartile: {verdict.reason}"
    return verdict if verdict.kind in FAILING else replace(verdict, kind=VerdictKind.REGRESSED, reason=reason)


def _name(key: Key) -> str:
    return "\n".join(key)


def _title(family: tuple[str, ...], others: Iterable[tuple[str, ...]]) -> str:
    """The unit, with what else tells the family from others of that unit."""
    canary, gate, better, unit, margin = family
    if canary:
        return f"{unit} of canary kernels"
    if sum(not other[0] and other[3] == unit for other in others) == 1:
        return unit
    return f"{unit} ({better} is better, by {gate}, margin {margin or 'of the run'})"


def accepted_history(
    baselines: Baselines, observation: Observation, key: FingerprintKey, across: Collection[str] = ()
) -> History:
    """What the baselines hold for a metric of a case: the newest sessions as window, and the anchor where it is older
    than they are.

    Of what a model answers, which a stack is not to change, the newest session under another stack stands in where this
    one has none. Incomparable where sessions were accepted, but under another key, of another definition of the case or
    of another quantity: the reason says which part differs. Raises ConfigError where `across` names no part of the key.
    """
    case, metric, digest = observation.case, observation.metric, observation.digest
    found = baselines.histories(case, key, digest=digest, across=across)
    sessions = [session for one in found for session in one if metric in session.metrics]
    if not sessions:
        if observation.gate in OF_ANSWERS and (other := baselines.under_other_stack(case, metric, key, digest=digest)):
            return History(sessions=_samples(other[:1], metric), stack=other[1])
        return History(instead=_why_incomparable(baselines, observation, key, across))
    quantity = baselines.quantity(case, metric, key, digest=digest, across=across)
    if quantity is not None and (changes := quantity_changes(quantity, observation)):
        return History(instead=another_quantity(changes))
    window = sessions[-NUM_WINDOW_SESSIONS:]
    anchor = [session for session in sessions[: -len(window)] if session.anchor]
    return History(
        sessions=_samples(window, observation.metric),
        anchor=_samples(anchor, observation.metric) if len(anchor) >= MIN_ANCHOR_SESSIONS else {},
    )


def quantity_changes(old: Quantity | Observation, new: Observation) -> tuple[str, ...]:
    """In what a metric is another quantity than before, such as "unit s -> ms". How it is judged is compared where both
    say so."""
    parts = [("unit", old.unit or "none", new.unit or "none"), ("better", old.better, new.better)]
    if old.gate is not None and new.gate is not None:
        parts.append(("gate", old.gate, new.gate))
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
