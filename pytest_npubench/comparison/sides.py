"""One side of a comparison: its sessions, each with the stack it ran on and what it measured.

A session here is what one device did in one finished run: the workers of a run under pytest-xdist are one session, two
devices are two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pytest_npubench.comparison.observation import Key, Observation
from pytest_npubench.errors import ConfigError
from pytest_npubench.plain_text import counted
from pytest_npubench.store.fingerprint import Fingerprint, FingerprintKey

UNKNOWN = "unknown"
ANY_DIGEST = ""
Facts = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SideSession:
    """started_at is ISO 8601 in UTC. `ids` are the names under which other sources know the same samples.

    `facts` are the parts of the fingerprint key by their names, then whatever else is known; `whole` says that all of
    the fingerprint is among them, so that a name that is missing is a thing that was not there. `invalid` maps the
    cases that could not be measured to the reason.
    """

    name: str
    ids: frozenset[str]
    started_at: str
    facts: Facts
    whole: bool
    observations: Mapping[Key, Observation]
    invalid: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Sessions, oldest first, and what was left out of them in words."""

    label: str
    sessions: tuple[SideSession, ...]
    notes: tuple[str, ...] = ()

    @property
    def cases(self) -> frozenset[str]:
        return frozenset(case for session in self.sessions for case, _ in session.observations)


def make_side(label: str, sessions: Iterable[SideSession], notes: Iterable[str] = ()) -> Side:
    """Sorted by start; sessions that measured nothing are left out."""
    measured = [session for session in sessions if session.observations or session.invalid]
    by_start = sorted(measured, key=lambda session: session.started_at)
    return Side(label=label, sessions=tuple(by_start), notes=tuple(notes))


def key_facts(key: FingerprintKey) -> dict[str, str]:
    return {name: getattr(key, name) or UNKNOWN for name in FingerprintKey.__slots__}


def fingerprint_facts(fingerprint: Fingerprint, device: str) -> dict[str, str]:
    """Everything a fingerprint says; `device` is the run's own name for the device, such as "cuda:0"."""
    host = fingerprint.host
    return {
        **key_facts(fingerprint.key()),
        "git_revision": host.git_revision or UNKNOWN,
        "pytest-npubench": host.plugin_version,
        **dict(host.libraries),
        "python": host.python,
        "system": host.system,
        "host": host.name,
        "cpu_model": host.cpu_model,
        "num_cores": str(host.num_cores),
        "device": device,
        **{f"device {name}": value for name, value in fingerprint.device.extra},
    }


def apart(old: Side, new: Side) -> tuple[Side, Side]:
    """Returns the sides without sessions in common: those count in A, unless B is nothing else, as one session of a
    journal is.

    So a folder of baselines is compared with the nights of a journal that were not accepted into it. Raises ConfigError
    where both hold the same sessions and no other.
    """
    in_both = _names(old) & _names(new)
    own_old, own_new = (tuple(session for session in side.sessions if not session.ids & in_both) for side in (old, new))
    if own_new or not new.sessions:
        return old, _less(new, own_new, "A")
    if not own_old and old.sessions:
        raise ConfigError(
            f"{old.label} and {new.label} hold the same sessions: name two sides, or split one with --by PART"
        )
    return _less(old, own_old, "B"), new


def _names(side: Side) -> frozenset[str]:
    return frozenset(name for session in side.sessions for name in session.ids)


def _less(side: Side, kept: tuple[SideSession, ...], other: str) -> Side:
    num_shared = len(side.sessions) - len(kept)
    notes = (f"on both sides, counted in {other}: {counted(num_shared, 'session')}",) if num_shared else ()
    return Side(label=side.label, sessions=kept, notes=(*side.notes, *notes))
