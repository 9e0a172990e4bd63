"""What a baseline file holds, and its JSON form: cases with their accepted sessions under one fingerprint key.

Everything is checked on reading: a field that is unknown, missing or of a wrong type is an error that names its place,
because a rewrite would lose it and a guess would judge against it. docs/formats.md shows a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from pytest_npubench.core.record_reader import JSON, check_keys
from pytest_npubench.store.accepted_session import AcceptedSession, AcceptedStack, Frozen, Quantity
from pytest_npubench.store.fingerprint import FingerprintKey
from pytest_npubench.store.json_text import JsonError, Time, take

FORMAT = "npubench-baseline"
VERSION = 3
FIELDS = ("format", "version", "hardware", "suite", "key", "cases", "rejected", "resets", "stacks")


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
    def from_json(cls, content: Any, name: str) -> BaselineCase:
        key = f"cases.{name}"
        check_keys(key, JSON.table(content, key), ("digest", "metrics", "sessions", "frozen"))
        digest, metrics = take(content, "digest", (str,), key), take(content, "metrics", (dict,), key)
        quantities = JSON.value(Mapping[str, Quantity], metrics, f"{key}.metrics")
        sessions: list[AcceptedSession] = []
        for index, entry in enumerate(take(content, "sessions", (list,), key)):
            entry_place = f"{key}.sessions[{index}]"
            read = AcceptedSession.from_json(entry, entry_place, name, digest, quantities)
            if read.session in (earlier.session for earlier in sessions):
                raise JsonError(f"{entry_place}.session: {read.session!r} stands twice")
            sessions.append(read)
        if not sessions:
            raise JsonError(f"{key}.sessions: empty; a case has at least one session")
        frozen = Frozen.from_json(content["frozen"], f"{key}.frozen", name, digest) if "frozen" in content else None
        return cls(digest=digest, metrics=quantities, sessions=tuple(sessions), frozen=frozen)


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineFile:
    """One suite on one hardware under one key: case key -> case; rejected session -> when and why; case key -> when and
    why it last began anew, also where nothing was accepted for it since; and session -> what measured it."""

    hardware: str
    suite: str
    key: FingerprintKey
    cases: Mapping[str, BaselineCase]
    rejected: Mapping[str, Rejection] = field(default_factory=dict)
    resets: Mapping[str, Reset] = field(default_factory=dict)
    stacks: Mapping[str, AcceptedStack] = field(default_factory=dict)

    @property
    def relative_path(self) -> Path:
        return Path(self.hardware, f"{self.suite}-{self.key.digest()}.json")

    @property
    def session_names(self) -> frozenset[str]:
        return frozenset(session.session for case in self.cases.values() for session in case.sessions)

    def to_json(self) -> dict[str, Any]:
        about = {"format": FORMAT, "version": VERSION, "hardware": self.hardware, "suite": self.suite}
        stacks = {name: stack.to_json(name) for name, stack in self.stacks.items() if name in self.session_names}
        return about | {
            "key": self.key.to_json(),
            "cases": {name: case.to_json(name) for name, case in self.cases.items()},
            "rejected": msgspec.to_builtins(self.rejected),
            "resets": msgspec.to_builtins(self.resets),
            **({"stacks": stacks} if stacks else {}),
        }

    @classmethod
    def from_json(cls, content: Any) -> BaselineFile:
        """Expects format and version to be checked. Raises JsonError and WrongEntryError naming the place."""
        check_keys("", content, FIELDS)
        suite, cases = take(content, "suite", (str,)), take(content, "cases", (dict,))
        rejected, resets = take(content, "rejected", (dict,)), take(content, "resets", (dict,))
        stacks = take(content, "stacks", (dict,)) if "stacks" in content else {}
        for key, names in (("cases", cases), ("resets", resets)):
            if foreign := [name for name in names if not name.startswith(f"{suite}/")]:
                raise JsonError(f"{key}.{foreign[0]}: not a case of the suite {suite!r}")
        read = cls(
            hardware=take(content, "hardware", (str,)),
            suite=suite,
            key=FingerprintKey.from_json(take(content, "key", (dict,))),
            cases={name: BaselineCase.from_json(cases[name], name) for name in cases},
            rejected=JSON.value(Mapping[str, Rejection], rejected, "rejected"),
            resets=JSON.value(Mapping[str, Reset], resets, "resets"),
            stacks={name: AcceptedStack.from_json(stacks[name], f"stacks.{name}", name) for name in stacks},
        )
        if both := read.session_names & read.rejected.keys():
            raise JsonError(f"rejected.{min(both)}: a case holds this session; want it accepted or rejected, not both")
        return read
