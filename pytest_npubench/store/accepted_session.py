"""One accepted session of a case in a baseline file: its samples, process by process, for each metric.

A session's entry carries a check sum over the case's name and digest, what its metrics are and everything in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from pytest_npubench.core.record_reader import JSON, WrongEntryError, check_keys, listed
from pytest_npubench.errors import StoreError
from pytest_npubench.store.fingerprint import Fingerprint
from pytest_npubench.store.json_text import JsonError, Time, check_sum, take, verify_sum
from pytest_npubench.verdict.result import JUDGED_GATES, Better, GateKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """What the first accepted session of a case fixed for all later ones: numbers by name, such as a rate or a limit.

    A gate whose limit comes from the run that it judges is none: on a device 4 times slower the limit is 4 times wider.
    So the case's record says what it was held to (`frozen`), its first acceptance keeps that, and later runs look it
    up. `values` are at least one; `session` is the one that they were taken from, with the time it was accepted.

    Worked example: the first accepted night measured {"rate_per_s": 0.44}; later nights say what they were run at, and
    0.44 stays until the case is reset or measures something else.
    """

    session: str
    accepted_at: Time
    values: Mapping[str, float]

    def __post_init__(self) -> None:
        """Raises WrongEntryError where there is no value."""
        if not self.values:
            raise WrongEntryError("values", "empty; want at least one")

    @property
    def age(self) -> tuple[datetime, str]:
        """The least of several is the one that was first."""
        return datetime.fromisoformat(self.accepted_at), self.session

    def to_json(self, case: str, digest: str) -> dict[str, Any]:
        return {**self._fields(), "check": check_sum([case, digest, self._fields()])}

    @classmethod
    def from_json(cls, content: Any, key: str, case: str, digest: str) -> Frozen:
        """Raises WrongEntryError naming the place, JsonError where the check sum does not fit."""
        read = JSON.record(cls, content, key, others=("check",))
        verify_sum(content, key, [case, digest, read._fields()])
        return read

    def _fields(self) -> Any:
        return msgspec.to_builtins(self)


Samples = Annotated[tuple[float, ...], Meta(min_length=1, description="one or more samples")]


def _judged(gate: GateKind) -> GateKind:
    if gate == "none":
        raise WrongEntryError("", f"want {listed(JUDGED_GATES)}, found {gate!r}")
    return gate


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """What a metric is, besides its name: unit, direction, and how it is judged; all its sessions share it.

    `margin` is the metric's own, None for the run's.
    """

    unit: str
    better: Better
    gate: Annotated[GateKind, _judged]
    margin: int | float | None = None

    def to_json(self) -> Any:
        return msgspec.to_builtins(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSamples:
    """One metric in one session: of each process the samples kept, and how many it had measured."""

    processes: Annotated[tuple[Samples, ...], Meta(min_length=1, description="a list of samples for each process")]
    num_measured: tuple[int, ...]

    def __post_init__(self) -> None:
        """Raises WrongEntryError where the numbers measured do not fit the samples kept."""
        if len(self.num_measured) != len(self.processes) or any(
            number < len(samples) for number, samples in zip(self.num_measured, self.processes, strict=True)
        ):
            raise WrongEntryError("num_measured", "want one count a process, none below the samples kept")


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedStack:
    """What measured an accepted session: the run's own name for the device, such as "cuda:0", and the whole
    fingerprint, of which the file's key is a part."""

    device: str
    fingerprint: Fingerprint

    def to_json(self, session: str) -> dict[str, Any]:
        fields = {"device": self.device, "fingerprint": self.fingerprint.to_json()}
        return {**fields, "check": check_sum([session, fields])}

    @classmethod
    def from_json(cls, content: Any, key: str, session: str) -> AcceptedStack:
        """Raises WrongEntryError naming the place, JsonError where the check sum does not fit."""
        check_keys(key, JSON.table(content, key), ("device", "fingerprint", "check"))
        verify_sum(content, key, [session, {name: content[name] for name in content if name != "check"}])
        try:
            fingerprint = Fingerprint.from_json(content["fingerprint"], f"{key}.fingerprint")
        except StoreError as error:
            raise JsonError(str(error)) from None
        return cls(device=take(content, "device", (str,), key), fingerprint=fingerprint)


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedSession:
    """One accepted session of a case. accepted_at is ISO 8601 with its offset from UTC; git_revision is the suite's.

    An anchor is never rotated out. `work` is what the case did, counted by name, of the newest session alone; `reason`
    why a person accepted an improvement; is_disturbed: something else used the device for part of it. An entry has the
    three where there is something to say.
    """

    session: str
    accepted_at: Time
    git_revision: str | None
    anchor: bool
    metrics: Mapping[str, KeptSamples]
    work: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""
    is_disturbed: bool = False

    @property
    def began_at(self) -> datetime:
        return began_at(self.session, self.accepted_at)

    def is_since(self, session: str, now: str) -> bool:
        """Whether it is that session or began after it, which is of `now` where its name does not tell."""
        return self.session.partition("@")[0] == session or self.began_at > began_at(session, now)

    @property
    def accepted_time(self) -> datetime:
        return datetime.fromisoformat(self.accepted_at)

    def to_json(self, case: str, digest: str, quantities: Mapping[str, Quantity]) -> dict[str, Any]:
        """Writes the session's entry under a case, with the check sum."""
        return self._fields() | {"check": check_sum(self._checked(case, digest, quantities))}

    @classmethod
    def from_json(
        cls, content: Any, key: str, case: str, digest: str, quantities: Mapping[str, Quantity]
    ) -> AcceptedSession:
        """Reads an entry. Raises WrongEntryError naming the place, JsonError where the check sum does not fit."""
        read = JSON.record(cls, {**_OPTIONAL, **JSON.table(content, key)}, key, others=("check",))
        if not read.metrics:
            raise WrongEntryError(f"{key}.metrics", "empty; a session has at least one metric")
        if unknown := read.metrics.keys() - quantities.keys():
            raise WrongEntryError(f"{key}.metrics.{min(unknown)}", "has no unit under the case's metrics")
        verify_sum(content, key, read._checked(case, digest, quantities))
        return read

    def _fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return {name: value for name, value in fields.items() if value or name not in _OPTIONAL}

    def _checked(self, case: str, digest: str, quantities: Mapping[str, Quantity]) -> list[Any]:
        return [case, digest, {name: quantities[name].to_json() for name in self.metrics}, self._fields()]


Sessions = tuple[AcceptedSession, ...]

_OPTIONAL: Mapping[str, Any] = {"work": {}, "reason": "", "is_disturbed": False}
"""Fields that an entry need not have, with what they are then."""


def began_at(session: str, accepted_at: str) -> datetime:
    """When a session began, by the name that its run gave it (20261121T130500-3f9a1c07); else when it was accepted."""
    try:
        began = datetime.strptime(session.partition("-")[0], "%Y%m%dT%H%M%S")
    except ValueError:
        return datetime.fromisoformat(accepted_at)
    return began.replace(tzinfo=timezone.utc)


AHEAD = timedelta(days=1)
"""Clocks of two machines differ by less."""


def is_ahead(moment: datetime) -> bool:
    """Whether it is in the future by more than clocks differ."""
    return moment > datetime.now(timezone.utc) + AHEAD
