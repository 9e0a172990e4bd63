"""What two sides have in common: one member for each metric of each case, with the samples of both, and what is on one
side only. A case that is measured in another way now (another digest) is on both sides and yet incomparable."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_npubench.comparison.observation import Key, Observation, is_canary
from pytest_npubench.comparison.sides import ANY_DIGEST, SideSession
from pytest_npubench.errors import ConfigError
from pytest_npubench.verdict import Verdict, VerdictKind
from pytest_npubench.verdict.observations import Scale, Session

Sessions = Mapping[str, Session]


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """`definition` is the newest observation, whose gate counts; sessions by name, oldest first."""

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
    members: tuple[Member, ...]
    incomparable: tuple[tuple[Observation, Verdict], ...]
    only_old: tuple[Missing, ...]
    only_new: tuple[Missing, ...]


def common(old: Sequence[SideSession], new: Sequence[SideSession], metrics: Collection[str] = ()) -> Common:
    """Over all metrics, or those named and the canaries'.

    Raises ConfigError where there is no metric of that name, or no case on both sides.
    """
    _check_metrics((*old, *new), metrics)
    before, after = _by_key(old, metrics), _by_key(new, metrics)
    if not before.keys() & after.keys():
        raise ConfigError(f"no case is on both sides: A has {_num_cases(before)} cases, B {_num_cases(after)}")
    members: list[Member] = []
    incomparable: list[tuple[Observation, Verdict]] = []
    for key in after:
        if key in before:
            definition, comparable = _definition(before[key], after[key])
            if comparable:
                digest = definition.digest
                members.append(Member(definition=definition, old=_of(before[key], digest), new=_of(after[key], digest)))
            else:
                incomparable.append((definition, _other_digest(before[key], definition)))
    return Common(
        members=tuple(members),
        incomparable=tuple(incomparable),
        only_old=_missing(before, after, new),
        only_new=_missing(after, before, old),
    )


Found = Mapping[str, tuple[SideSession, Observation]]  # session name -> what it measured


def _by_key(
    sessions: Sequence[SideSession], metrics: Collection[str]
) -> dict[Key, dict[str, tuple[SideSession, Observation]]]:
    found: dict[Key, dict[str, tuple[SideSession, Observation]]] = {}
    for session in sessions:
        for key, observation in session.observations.items():
            if not metrics or key[1] in metrics or is_canary(key[0]):
                found.setdefault(key, {})[session.name] = (session, observation)
    return found


def _check_metrics(sessions: Iterable[SideSession], metrics: Collection[str]) -> None:
    names = {metric for session in sessions for _, metric in session.observations}
    if unknown := sorted(set(metrics) - names):
        raise ConfigError(f"--metric {unknown[0]}: neither side has it; they have {', '.join(sorted(names)) or 'none'}")


def _num_cases(found: Mapping[Key, Found]) -> int:
    return len({case for case, _ in found})


def _definition(before: Found, after: Found) -> tuple[Observation, bool]:
    """The newest observation with the gate of the newest source that knows gates; whether digests meet."""
    session, newest = list(after.values())[-1]
    digests = {observation.digest for _, observation in before.values()}
    if newest.digest == ANY_DIGEST:
        newest = replace(newest, digest=list(before.values())[-1][1].digest)
    if not session.knows_gates:
        known = [one for source, one in (*before.values(), *after.values()) if source.knows_gates]
        if known:
            newest = replace(newest, gate=known[-1].gate, margin=known[-1].margin)
    return newest, ANY_DIGEST in digests or newest.digest in digests


def _of(found: Found, digest: str) -> Sessions:
    return {
        name: observation.processes
        for name, (_, observation) in found.items()
        if observation.digest in (digest, ANY_DIGEST)
    }


def _other_digest(before: Found, definition: Observation) -> Verdict:
    old = list(before.values())[-1][1].digest
    reason = f"what is measured changed: case digest {old} -> {definition.digest}"
    return Verdict(kind=VerdictKind.INCOMPARABLE, reason=reason)


def _missing(
    here: Mapping[Key, Found], there: Mapping[Key, Found], others: Iterable[SideSession]
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
