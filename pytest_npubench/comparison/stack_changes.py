"""What differs between the stacks of two sides, and sessions split by one part of their stack.

A gate on a driver upgrade must hold everything else still. Sessions split by `driver` are compared only where the rest
of their fingerprint keys is equal: of each case on a device class the newest such group. Stacks that measure different
cases of one device, such as jax and torch, are compared both.

Worked example: sessions with (driver 570.86, jax 0.9), (570.86, jax 0.10) and (580.12, jax 0.10), by driver: the first
is left out, the other two are the sides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytest_npubench.comparison.sides import UNKNOWN, Side, SideSession
from pytest_npubench.errors import ConfigError
from pytest_npubench.plain_text import counted
from pytest_npubench.store.fingerprint import FingerprintKey

NUM_NAMED = 3
ABSENT = "not there"
Values = tuple[str, ...]


def stack_changes(old: Sequence[SideSession], new: Sequence[SideSession]) -> tuple[str, ...]:
    """ "driver 570.86 -> 580.12" for every fact whose values differ, those of the key first.

    A fact that only one side knows is told where the other side knows its whole fingerprint.
    """
    names = dict.fromkeys(name for session in (*old, *new) for name in session.facts)
    lines = []
    for name in names:
        before, after = _values(old, name), _values(new, name)
        if before and after and set(before) != set(after) and {ABSENT} != {*before, *after}:
            lines.append(f"{name} {_shown(before)} -> {_shown(after)}")
    return tuple(lines)


def split(side: Side, by: Sequence[str], old: str | None = None, new: str | None = None) -> tuple[Side, Side]:
    """Returns the sessions with the oldest value of these parts and those with the newest, or with the values named.

    Raises ConfigError where a part is not known, a value is not there, or all sessions have the same.
    """
    by_value: dict[Values, list[SideSession]] = {}
    for session in side.sessions:
        by_value.setdefault(_value(session, by, side), []).append(session)
    first, last = _chosen(list(by_value), by, old, new, side.label)
    sides = tuple(
        Side(label=f"{' + '.join(by)} {' + '.join(value)}", sessions=tuple(by_value[value]), notes=side.notes)
        for value in (first, last)
    )
    between = [value for value in by_value if value not in (first, last)]
    notes = [f"sessions of {' + '.join(by)} {' + '.join(value)} are left out" for value in between]
    return Side(label=sides[0].label, sessions=sides[0].sessions, notes=(*side.notes, *notes)), sides[1]


def alike_but_for(old: Side, new: Side, by: Sequence[str]) -> tuple[Side, Side]:
    """Returns the sessions whose keys differ only in the parts `by`. Raises ConfigError where there are none."""
    parts = [name for name in FingerprintKey.__slots__ if name not in by]
    devices = [name for name in ("accelerator", "device_class") if name in parts]
    common = {_facts(one, parts) for one in old.sessions} & {_facts(one, parts) for one in new.sessions}
    on_both = _case_stacks(old, parts) & _case_stacks(new, parts)
    newest: dict[tuple[Values, str], tuple[bool, str, Values]] = {}
    for session in (*old.sessions, *new.sessions):
        rest, device = _facts(session, parts), _facts(session, devices)
        for case in _cases(session) if rest in common else ():
            rank = ((rest, case) in on_both, session.started_at, rest)
            newest[device, case] = max(newest.get((device, case), rank), rank)
    if not newest:
        raise ConfigError(_nothing_alike(old, new, by, parts))
    kept = {(rest, case) for (_, case), (_, _, rest) in newest.items()}
    return _only(old, parts, kept), _only(new, parts, kept)


def _cases(session: SideSession) -> set[str]:
    return {case for case, _ in session.observations} | set(session.invalid)


def _case_stacks(side: Side, parts: Sequence[str]) -> set[tuple[Values, str]]:
    return {(_facts(session, parts), case) for session in side.sessions for case in _cases(session)}


def _only(side: Side, parts: Sequence[str], kept: set[tuple[Values, str]]) -> Side:
    """Returns the sessions with only the cases whose stack is in `kept`."""
    sessions = []
    for session in side.sessions:
        rest = _facts(session, parts)
        cases = {case for case in _cases(session) if (rest, case) in kept}
        if cases:
            observations = {key: observation for key, observation in session.observations.items() if key[0] in cases}
            invalid = {case: reason for case, reason in session.invalid.items() if case in cases}
            sessions.append(replace(session, observations=observations, invalid=invalid))
    num_out = len(side.sessions) - len(sessions)
    notes = (
        (f"left out: {counted(num_out, 'session')} of {side.label}, of whose stack more differs",) if num_out else ()
    )
    return Side(label=side.label, sessions=tuple(sessions), notes=(*side.notes, *notes))


def _chosen(
    values: Sequence[Values], by: Sequence[str], old: str | None, new: str | None, label: str
) -> tuple[Values, Values]:
    present = ", ".join(" + ".join(value) for value in values)
    for name in (old, new):
        if name is not None and (name,) not in values:
            raise ConfigError(f"{label}: no session has {' + '.join(by)} {name}; there are {present or 'none'}")
    if not values:
        raise ConfigError(f"{label}: no finished session with cases")
    last = (
        (new,) if new is not None else next(value for value in reversed(values) if value != (old,) or len(values) == 1)
    )
    first = (old,) if old is not None else next((value for value in values if value != last), last)
    if first == last:
        raise ConfigError(f"{label}: every session has {' + '.join(by)} {present}; want two values to compare")
    return first, last


def _value(session: SideSession, by: Sequence[str], side: Side) -> Values:
    for name in by:
        if name not in session.facts and not session.whole:
            raise ConfigError(f"{side.label}: does not tell {name!r}; it knows {', '.join(session.facts)}")
        if not any(name in other.facts for other in side.sessions):
            raise ConfigError(f"--by {name}: no such part of a stack; there are {', '.join(session.facts)}")
    return _facts(session, by)


def _facts(session: SideSession, names: Sequence[str]) -> Values:
    return tuple(session.facts.get(name, ABSENT if session.whole else UNKNOWN) for name in names)


def _values(sessions: Sequence[SideSession], name: str) -> list[str]:
    """Each value once, in order, without sessions that do not know it."""
    if not all(session.whole or name in session.facts for session in sessions):
        return []
    return list(dict.fromkeys(session.facts.get(name, ABSENT) for session in sessions))


def _shown(values: Sequence[str]) -> str:
    if len(values) <= NUM_NAMED:
        return ", ".join(values)
    return f"{', '.join(values[: NUM_NAMED - 1])} and {len(values) - NUM_NAMED + 1} more"


def _nothing_alike(old: Side, new: Side, by: Sequence[str], parts: Sequence[str]) -> str:
    before, after = old.sessions[-1], new.sessions[-1]
    also = [
        f"{name} {one} -> {other}"
        for name, one, other in zip(parts, _facts(before, parts), _facts(after, parts), strict=True)
        if one != other
    ]
    return (
        f"no two sessions of {old.label} and {new.label} differ in {' and '.join(by)} alone: "
        f"so does {', '.join(also)}; name these parts with --by too to compare all the same"
    )
