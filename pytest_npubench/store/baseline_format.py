"""What a baseline file holds, and its JSON form: cases with their accepted sessions under one fingerprint key.

Everything is checked on reading: a field that is unknown, missing or of a wrong type is an error that names its place,
because a rewrite would lose it and a guess would judge against it. docs/formats.md shows a file and its history.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pytest_npubench.store.fingerprint import FingerprintKey
from pytest_npubench.store.json_text import JsonError, join, take

FORMAT = "npubench-baseline"
VERSION = 1
BETTER = ("lower", "higher")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A metric's unit and direction (one of BETTER), which all its sessions share."""

    unit: str
    better: str

    def to_json(self) -> dict[str, Any]:
        return {"unit": self.unit, "better": self.better}

    @classmethod
    def from_json(cls, content: Any, place: str) -> Quantity:
        _only(content, place, "unit", "better")
        better = take(content, "better", (str,), place)
        if better not in BETTER:
            raise JsonError(f"{place}.better: want {' or '.join(BETTER)}, found {better!r}")
        return cls(unit=take(content, "unit", (str,), place), better=better)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSamples:
    """One metric in one session: of each process the samples kept, and how many it had measured."""

    processes: tuple[tuple[float, ...], ...]
    num_measured: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        return {"processes": [list(samples) for samples in self.processes], "num_measured": list(self.num_measured)}

    @classmethod
    def from_json(cls, content: Any, place: str) -> KeptSamples:
        _only(content, place, "processes", "num_measured")
        processes = _items(content, "processes", (list,), place)
        if not processes:
            raise JsonError(f"{place}.processes: empty; want a list of samples for each process")
        num_measured = tuple(_items(content, "num_measured", (int,), place))
        kept = tuple(_samples(samples, f"{place}.processes[{index}]") for index, samples in enumerate(processes))
        if len(num_measured) != len(kept) or any(
            n < len(samples) for n, samples in zip(num_measured, kept, strict=True)
        ):
            raise JsonError(f"{place}.num_measured: want one count a process, none below the samples kept")
        return cls(processes=kept, num_measured=num_measured)


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedSession:
    """One accepted session of a case, by metric; accepted_at in ISO 8601 with its offset from UTC."""

    session: str
    accepted_at: str
    metrics: Mapping[str, KeptSamples]

    def to_json(self) -> dict[str, Any]:
        metrics = {name: kept.to_json() for name, kept in self.metrics.items()}
        return {"session": self.session, "accepted_at": self.accepted_at, "metrics": metrics}

    @classmethod
    def from_json(cls, content: Any, place: str) -> AcceptedSession:
        _only(content, place, "session", "accepted_at", "metrics")
        metrics = take(content, "metrics", (dict,), place)
        return cls(
            session=take(content, "session", (str,), place),
            accepted_at=checked_time(take(content, "accepted_at", (str,), place), f"{place}.accepted_at"),
            metrics={name: KeptSamples.from_json(metrics[name], f"{place}.metrics.{name}") for name in metrics},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineCase:
    """A case under one digest of what is measured; sessions in the order accepted, the first one the anchor."""

    digest: str
    metrics: Mapping[str, Quantity]
    sessions: tuple[AcceptedSession, ...]

    def to_json(self) -> dict[str, Any]:
        metrics = {name: quantity.to_json() for name, quantity in self.metrics.items()}
        return {
            "digest": self.digest,
            "metrics": metrics,
            "sessions": [session.to_json() for session in self.sessions],
        }

    @classmethod
    def from_json(cls, content: Any, place: str) -> BaselineCase:
        _only(content, place, "digest", "metrics", "sessions")
        metrics = take(content, "metrics", (dict,), place)
        items = _items(content, "sessions", (dict,), place)
        sessions = [AcceptedSession.from_json(item, f"{place}.sessions[{index}]") for index, item in enumerate(items)]
        for index, session in enumerate(sessions):
            if session.session in (earlier.session for earlier in sessions[:index]):
                raise JsonError(f"{place}.sessions[{index}].session: {session.session!r} stands twice")
            if unknown := session.metrics.keys() - metrics.keys():
                raise JsonError(f"{place}.sessions[{index}].metrics.{min(unknown)}: has no unit under {place}.metrics")
        return cls(
            digest=take(content, "digest", (str,), place),
            metrics={name: Quantity.from_json(metrics[name], f"{place}.metrics.{name}") for name in metrics},
            sessions=tuple(sessions),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineFile:
    """One suite on one hardware under one key: case key -> case."""

    hardware: str
    suite: str
    key: FingerprintKey
    cases: Mapping[str, BaselineCase]

    @property
    def relative_path(self) -> Path:
        return Path(self.hardware, f"{self.suite}-{self.key.digest()}.json")

    def to_json(self) -> dict[str, Any]:
        about = {"format": FORMAT, "version": VERSION, "hardware": self.hardware, "suite": self.suite}
        cases = {name: case.to_json() for name, case in self.cases.items()}
        return {**about, "key": self.key.to_json(), "cases": cases}

    @classmethod
    def from_json(cls, content: Any) -> BaselineFile:
        """Expects format and version to be checked. Raises JsonError naming the place."""
        _only(content, "", "format", "version", "hardware", "suite", "key", "cases")
        suite = take(content, "suite", (str,))
        cases = take(content, "cases", (dict,))
        if foreign := [name for name in cases if not name.startswith(f"{suite}/")]:
            raise JsonError(f"cases.{foreign[0]}: not a case of the suite {suite!r}")
        return cls(
            hardware=take(content, "hardware", (str,)),
            suite=suite,
            key=FingerprintKey.from_json(take(content, "key", (dict,))),
            cases={name: BaselineCase.from_json(cases[name], f"cases.{name}") for name in cases},
        )


def checked_time(text: str, place: str) -> str:
    """`text` if it is a time with an offset from UTC. Raises JsonError naming the place."""
    try:
        if datetime.fromisoformat(text).tzinfo is not None:
            return text
    except ValueError:
        pass
    raise JsonError(f"{place}: want a time like 2026-11-21T13:05:00+00:00, found {text!r}")


def _samples(samples: list[Any], place: str) -> tuple[float, ...]:
    if not samples:
        raise JsonError(f"{place}: no samples")
    return tuple(float(value) for value in _items({place: samples}, place, (int, float), ""))


def _items(content: Any, name: str, kinds: tuple[type, ...], place: str) -> list[Any]:
    items = take(content, name, (list,), place)
    return [take({f"{name}[{index}]": item}, f"{name}[{index}]", kinds, place) for index, item in enumerate(items)]


def _only(content: Any, place: str, *names: str) -> None:
    if not isinstance(content, Mapping):
        raise JsonError(f"{place or 'value'}: want an object")
    if unknown := content.keys() - set(names):
        raise JsonError(f"{join(place, min(unknown))}: unknown; allowed are {', '.join(names)}")
