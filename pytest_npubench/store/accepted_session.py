"""One accepted session of a case in a baseline file: its samples, process by process, for each metric.

A session's entry carries a check sum over the case's name and digest, what its metrics are and everything in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, get_args

from pytest_npubench.store.json_fields import check_sum, checked_time, items, only, verify_sum
from pytest_npubench.store.json_text import JsonError, take
from pytest_npubench.verdict.result import Better, GateKind

BETTER: Mapping[str, Better] = {name: name for name in get_args(Better)}
GATES: Mapping[str, GateKind] = {name: name for name in get_args(GateKind)}
JUDGED = tuple(gate for gate in GATES if gate != "none")
SINCE_GATES = 3  # the format version from which on a file says how a metric is judged


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """What a metric is, besides its name: unit, direction, and how it is judged; all its sessions share it.

    `gate` is None where a file of an earlier format did not say; `margin` is the metric's own, None for the run's.
    """

    unit: str
    better: Better
    gate: GateKind | None
    margin: float | None = None

    def to_json(self) -> dict[str, Any]:
        return {**self._as_in_2(), "gate": self.gate, "margin": self.margin}

    def checked(self, version: int) -> dict[str, Any]:
        """What of it stands under the check sums of a format version."""
        return self._as_in_2() if version < SINCE_GATES else self.to_json()

    @classmethod
    def from_json(cls, content: Any, place: str, version: int) -> Quantity:
        since_3 = () if version < SINCE_GATES else ("gate", "margin")
        only(content, place, "unit", "better", *since_3)
        better = take(content, "better", (str,), place)
        if better not in BETTER:
            raise JsonError(f"{place}.better: want {' or '.join(BETTER)}, found {better!r}")
        gate = take(content, "gate", (str, type(None)), place) if since_3 else None
        if gate not in (*JUDGED, None):
            raise JsonError(f"{place}.gate: want {', '.join(JUDGED)} or null, found {gate!r}")
        margin = take(content, "margin", (int, float, type(None)), place) if since_3 else None
        return cls(unit=take(content, "unit", (str,), place), better=BETTER[better], gate=gate, margin=margin)

    def _as_in_2(self) -> dict[str, Any]:
        return {"unit": self.unit, "better": self.better}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSamples:
    """One metric in one session: of each process the samples kept, and how many it had measured."""

    processes: tuple[tuple[float, ...], ...]
    num_measured: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        return {"processes": [list(samples) for samples in self.processes], "num_measured": list(self.num_measured)}

    @classmethod
    def from_json(cls, content: Any, place: str) -> KeptSamples:
        only(content, place, "processes", "num_measured")
        processes = items(content, "processes", (list,), place)
        if not processes:
            raise JsonError(f"{place}.processes: empty; want a list of samples for each process")
        num_measured = tuple(items(content, "num_measured", (int,), place))
        kept = tuple(_samples(samples, f"{place}.processes[{index}]") for index, samples in enumerate(processes))
        if len(num_measured) != len(kept) or any(
            n < len(samples) for n, samples in zip(num_measured, kept, strict=True)
        ):
            raise JsonError(f"{place}.num_measured: want one count a process, none below the samples kept")
        return cls(processes=kept, num_measured=num_measured)


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedSession:
    """One accepted session of a case. accepted_at is ISO 8601 with its offset from UTC; git_revision is the suite's.

    An anchor is never rotated out.
    """

    session: str
    accepted_at: str
    git_revision: str | None
    anchor: bool
    metrics: Mapping[str, KeptSamples]

    @property
    def began_at(self) -> datetime:
        return began_at(self.session, self.accepted_at)

    @property
    def accepted_time(self) -> datetime:
        return datetime.fromisoformat(self.accepted_at)

    def to_json(self, case: str, digest: str, quantities: Mapping[str, Quantity]) -> dict[str, Any]:
        """Its entry under a case, with the check sum."""
        return self._fields() | {"check": check_sum(self._checked(case, digest, quantities, SINCE_GATES))}

    @classmethod
    def from_json(
        cls, content: Any, place: str, case: str, digest: str, quantities: Mapping[str, Quantity], version: int
    ) -> AcceptedSession:
        """An entry of version 2 or later. Raises JsonError naming the place, also where the check sum does not fit."""
        only(content, place, "session", "accepted_at", "git_revision", "anchor", "metrics", "check")
        read = cls(
            session=take(content, "session", (str,), place),
            accepted_at=_accepted_at(content, place),
            git_revision=take(content, "git_revision", (str, type(None)), place),
            anchor=take(content, "anchor", (bool,), place),
            metrics=_metrics(content, place, quantities),
        )
        verify_sum(content, place, read._checked(case, digest, quantities, version))
        return read

    @classmethod
    def from_json_1(
        cls, content: Any, place: str, quantities: Mapping[str, Quantity], *, anchor: bool
    ) -> AcceptedSession:
        """An entry of format version 1, which knows neither revision nor anchor. Raises JsonError naming the place."""
        only(content, place, "session", "accepted_at", "metrics")
        return cls(
            session=take(content, "session", (str,), place),
            accepted_at=_accepted_at(content, place),
            git_revision=None,
            anchor=anchor,
            metrics=_metrics(content, place, quantities),
        )

    def _fields(self) -> dict[str, Any]:
        return {
            "session": self.session,
            "accepted_at": self.accepted_at,
            "git_revision": self.git_revision,
            "anchor": self.anchor,
            "metrics": {name: kept.to_json() for name, kept in self.metrics.items()},
        }

    def _checked(self, case: str, digest: str, quantities: Mapping[str, Quantity], version: int) -> list[Any]:
        return [case, digest, {name: quantities[name].checked(version) for name in self.metrics}, self._fields()]


def began_at(session: str, accepted_at: str) -> datetime:
    """When a session began, by the name that its run gave it (20261121T130500-3f9a1c07); else when it was accepted."""
    try:
        began = datetime.strptime(session.partition("-")[0], "%Y%m%dT%H%M%S")
    except ValueError:
        return datetime.fromisoformat(accepted_at)
    return began.replace(tzinfo=timezone.utc)


def _accepted_at(content: Any, place: str) -> str:
    return checked_time(take(content, "accepted_at", (str,), place), f"{place}.accepted_at")


def _metrics(content: Any, place: str, quantities: Mapping[str, Quantity]) -> dict[str, KeptSamples]:
    metrics = take(content, "metrics", (dict,), place)
    if not metrics:
        raise JsonError(f"{place}.metrics: empty; a session has at least one metric")
    read = {name: KeptSamples.from_json(metrics[name], f"{place}.metrics.{name}") for name in metrics}
    if unknown := read.keys() - quantities.keys():
        raise JsonError(f"{place}.metrics.{min(unknown)}: has no unit under the case's metrics")
    return read


def _samples(samples: list[Any], place: str) -> tuple[float, ...]:
    if not samples:
        raise JsonError(f"{place}: no samples")
    return tuple(float(value) for value in items({place: samples}, place, (int, float), ""))
