"""What a baseline file holds, and its JSON form: cases with their accepted sessions under one fingerprint key.

Everything is checked on reading: a field that is unknown, missing or of a wrong type is an error that names its place,
because a rewrite would lose it and a guess would judge against it. Versions 1 and 2 are read too: neither says how a
metric is judged, and of version 1 the first session is the anchor. docs/formats.md shows a file and its history.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from pytest_npubench.core.record_reader import JSON, check_keys
from pytest_npubench.store.accepted_session import AcceptedSession, Quantity
from pytest_npubench.store.fingerprint import FingerprintKey
from pytest_npubench.store.frozen_values import Frozen
from pytest_npubench.store.json_fields import Time
from pytest_npubench.store.json_text import JsonError, take

FORMAT = "npubench-baseline"
VERSION = 3
READABLE_VERSIONS = (1, 2, VERSION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """When and why a person rejected a session; rejected_at in ISO 8601 with its offset from UTC."""

    rejected_at: Time
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """When and why a person let a case begin anew; reset_at in ISO 8601 with its offset from UTC.

    Sessions that began before it are not accepted for the case any more, and their doubts do not count.
    """

    reset_at: Time
    reason: str

    @property
    def time(self) -> datetime:
        return datetime.fromisoformat(self.reset_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineCase:
    """A case under one digest of what is measured; sessions in the order accepted, at least one.

    `frozen` is what the first of them fixed for all later ones, None where it fixed nothing.
    """

    digest: str
    metrics: Mapping[str, Quantity]
    sessions: tuple[AcceptedSession, ...]
    frozen: Frozen | None = None

    def to_json(self, name: str) -> dict[str, Any]:
        frozen = {} if self.frozen is None else {"frozen": self.frozen.to_json(name, self.digest)}
        return {
            "digest": self.digest,
            "metrics": {metric: quantity.to_json() for metric, quantity in self.metrics.items()},
            "sessions": [session.to_json(name, self.digest, self.metrics) for session in self.sessions],
            **frozen,
        }

    @classmethod
    def from_json(cls, content: Any, name: str, version: int) -> BaselineCase:
        place = f"cases.{name}"
        since_3 = ("frozen",) if version >= 3 else ()
        check_keys(place, JSON.table(content, place), ("digest", "metrics", "sessions", *since_3))
        digest, metrics = take(content, "digest", (str,), place), take(content, "metrics", (dict,), place)
        quantities = {
            metric: Quantity.from_json(metrics[metric], f"{place}.metrics.{metric}", version) for metric in metrics
        }
        sessions: list[AcceptedSession] = []
        for index, entry in enumerate(take(content, "sessions", (list,), place)):
            entry_place = f"{place}.sessions[{index}]"
            if version == 1:
                read = AcceptedSession.from_json_1(entry, entry_place, quantities, anchor=index == 0)
            else:
                read = AcceptedSession.from_json(entry, entry_place, name, digest, quantities, version)
            if read.session in (earlier.session for earlier in sessions):
                raise JsonError(f"{entry_place}.session: {read.session!r} stands twice")
            sessions.append(read)
        if not sessions:
            raise JsonError(f"{place}.sessions: empty; a case has at least one session")
        frozen = Frozen.from_json(content["frozen"], f"{place}.frozen", name, digest) if "frozen" in content else None
        return cls(digest=digest, metrics=quantities, sessions=tuple(sessions), frozen=frozen)


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineFile:
    """One suite on one hardware under one key: case key -> case; rejected session -> when and why; and case key -> when
    and why it last began anew, also where nothing was accepted for it since."""

    hardware: str
    suite: str
    key: FingerprintKey
    cases: Mapping[str, BaselineCase]
    rejected: Mapping[str, Rejection] = field(default_factory=dict)
    resets: Mapping[str, Reset] = field(default_factory=dict)

    @property
    def relative_path(self) -> Path:
        return Path(self.hardware, f"{self.suite}-{self.key.digest()}.json")

    @property
    def session_names(self) -> frozenset[str]:
        return frozenset(session.session for case in self.cases.values() for session in case.sessions)

    def to_json(self) -> dict[str, Any]:
        about = {"format": FORMAT, "version": VERSION, "hardware": self.hardware, "suite": self.suite}
        return about | {
            "key": self.key.to_json(),
            "cases": {name: case.to_json(name) for name, case in self.cases.items()},
            "rejected": msgspec.to_builtins(self.rejected),
            "resets": msgspec.to_builtins(self.resets),
        }

    @classmethod
    def from_json(cls, content: Any) -> BaselineFile:
        """Expects format and version to be checked. Raises JsonError and WrongEntryError naming the place."""
        version = take(content, "version", (int,))
        since_2 = () if version == 1 else ("rejected",)
        since_3 = ("resets",) if version >= 3 else ()
        check_keys("", content, ("format", "version", "hardware", "suite", "key", "cases", *since_2, *since_3))
        suite, cases = take(content, "suite", (str,)), take(content, "cases", (dict,))
        rejected = take(content, "rejected", (dict,)) if since_2 else {}
        resets = take(content, "resets", (dict,)) if since_3 else {}
        for place, names in (("cases", cases), ("resets", resets)):
            if foreign := [name for name in names if not name.startswith(f"{suite}/")]:
                raise JsonError(f"{place}.{foreign[0]}: not a case of the suite {suite!r}")
        read = cls(
            hardware=take(content, "hardware", (str,)),
            suite=suite,
            key=FingerprintKey.from_json(take(content, "key", (dict,))),
            cases={name: BaselineCase.from_json(cases[name], name, version) for name in cases},
            rejected=JSON.value(Mapping[str, Rejection], rejected, "rejected"),
            resets=JSON.value(Mapping[str, Reset], resets, "resets"),
        )
        if both := read.session_names & read.rejected.keys():
            raise JsonError(f"rejected.{min(both)}: a case holds this session; want it accepted or rejected, not both")
        return read
