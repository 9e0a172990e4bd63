"""What two sides have in common: one member for each metric of each case, with the samples of both, and what is on one
side only. Of a case that is measured in another way now (another digest), and of a metric that is another quantity now
(unit, direction, gate), both sides hold samples and yet are incomparable.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_npubench.comparison.observation import (
    Key,
    Observation,
    another_quantity,
    is_canary,
    quantity_changes,
)
from pytest_npubench.comparison.sides import ANY_DIGEST, SideSession
from pytest_npubench.core.case import is_answers
from pytest_npubench.errors import ConfigError
from pytest_npubench.plain_text import counted
from pytest_npubench.verdict import Verdict, VerdictKind
from pytest_npubench.verdict.observations import Scale, Session

Sessions = Mapping[str, Session]
BySession = Mapping[str, tuple[SideSession, Observation]]  # session name -> what it measured


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedMetric:
    """`definition` is the newest observation; sessions of the same quantity by name, oldest first."""

    definition: Observation
    old: Sessions
    new: Sessions

    @property
    def key(self) -> Key:
        return self.definition.key

    @property
    def family(self) -> tuple[str, ...]:
        return self.definition.family

    @property
    def scale(self) -> Scale:
        return "difference" if self.definition.gate == "difference" else "ratio"


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A case, or one metric of it, that one side lacks, with the reason where there is one."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    members: tuple[ComparedMetric, ...]
    incomparable: tuple[tuple[Observation, Verdict], ...]
    only_old: tuple[Missing, ...]
    only_new: tuple[Missing, ...]


def common(old: Sequence[SideSession], new: Sequence[SideSession], metrics: Collection[str] = ()) -> Common:
    """Returns the metrics of both sides: all, or the named ones, the canaries' and the answers'. Raises ConfigError
    where there is no metric of that name, or no case on both sides."""
    _check_metrics((*old, *new), metrics)
    before, after = _by_key(old, metrics), _by_key(new, metrics)
    if not before.keys() & after.keys():
        raise ConfigError(f"no case is on both sides: A has {_num_cases(before)}, B {_num_cases(after)}")
    members: list[ComparedMetric] = []
    incomparable: list[tuple[Observation, Verdict]] = []
    for key in after:
        if key in before:
            definition = _definition(before[key], after[key])
            if (verdict := _incomparable(before[key], definition)) is not None:
                incomparable.append((definition, verdict))
            elif definition.gate != "none":
                members.append(
                    ComparedMetric(
                        definition=definition, old=_like(before[key], definition), new=_like(after[key], definition)
                    )
                )
    return Common(
        members=tuple(members),
        incomparable=tuple(incomparable),
        only_old=_missing(before, after, new),
        only_new=_missing(after, before, old),
    )


def _by_key(
    sessions: Sequence[SideSession], metrics: Collection[str]
) -> dict[Key, dict[str, tuple[SideSession, Observation]]]:
    by_key: dict[Key, dict[str, tuple[SideSession, Observation]]] = {}
    for session in sessions:
        for key, observation in session.observations.items():
            if not metrics or key[1] in metrics or is_canary(key[0]) or is_answers(key[0]):
                by_key.setdefault(key, {})[session.name] = (session, observation)
    return by_key


def _check_metrics(sessions: Iterable[SideSession], metrics: Collection[str]) -> None:
    names = {metric for session in sessions for _, metric in session.observations}
    if unknown := sorted(set(metrics) - names):
        raise ConfigError(f"--metric {unknown[0]}: neither side has it; they have {', '.join(sorted(names)) or 'none'}")


def _num_cases(by_key: Mapping[Key, BySession]) -> str:
    return counted(len({case for case, _ in by_key}), "case")


def _definition(before: BySession, after: BySession) -> Observation:
    """Returns the newest observation."""
    _, newest = list(after.values())[-1]
    if newest.digest == ANY_DIGEST:
        return replace(newest, digest=list(before.values())[-1][1].digest)
    return newest


def _incomparable(before: BySession, definition: Observation) -> Verdict | None:
    digests = {observation.digest for _, observation in before.values()}
    if ANY_DIGEST not in digests and definition.digest not in digests:
        return _other_digest(before, definition)
    if not _like(before, definition):
        newest = [seen for _, seen in before.values() if seen.digest in (definition.digest, ANY_DIGEST)][-1]
        return another_quantity(quantity_changes(newest, definition))
    return None


def _like(by_session: BySession, definition: Observation) -> Sessions:
    """Returns the sessions that measured the same quantity of the same definition of the case."""
    return {
        name: observation.processes
        for name, (_, observation) in by_session.items()
        if observation.digest in (definition.digest, ANY_DIGEST) and not quantity_changes(observation, definition)
    }


def _other_digest(before: BySession, definition: Observation) -> Verdict:
    old = list(before.values())[-1][1].digest
    reason = f"what is measured changed: case digest {old} -> {definition.digest}"
    return Verdict(kind=VerdictKind.INCOMPARABLE, reason=reason)


def _missing(
    here: Mapping[Key, BySession], there: Mapping[Key, BySession], others: Iterable[SideSession]
) -> tuple[Missing, ...]:
    """Cases that the other side lacks, and single metrics of cases that it has."""
    reasons = {case: reason for session in others for case, reason in session.invalid.items()}
    cases = {case for case, _ in there}
    names: dict[str, str] = {}
    for case, metric in here:
        if case not in cases:
            names[case] = f"invalid there: {reasons[case]}" if case in reasons else ""
        elif (case, metric) not in there:
            names[f"{case} {metric}"] = ""
    return tuple(Missing(name=name, reason=reason) for name, reason in names.items())
