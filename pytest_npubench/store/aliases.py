"""Renamed cases: baselines/aliases.json says which old case key is now which new one, so that history is kept.

A case's digest changes with its name, because it hashes model, hardware and parameters. So an alias carries two
digests: `digest`, under which sessions of the old name were accepted, and `case_digest`, the one of the new name that
means the same measurement. The latter is not known before the case ran under its new name: it is bound when the first
session is accepted there, and until then any digest is taken for it. When the case measures something else later, its
digest is another one and the old sessions no longer belong to it.

Worked example: with A -> B (digest a, bound to b) and B -> C (digest b), sessions of C under any digest are followed by
those of B under b, and those of A under a: Aliases.names("C", "c") == (("C", "c"), ("B", "b"), ("A", "a")).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from pytest_npubench.core.record_reader import JSON, check_keys
from pytest_npubench.errors import BaselineError
from pytest_npubench.store.json_text import JsonError, check_sum, take, verify_sum

FILE_NAME = "aliases.json"
FORMAT = "npubench-aliases"
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Alias:
    """What an old case key stands for now: the new key, the digest of the old sessions, and that of the new name."""

    case: str
    digest: str
    case_digest: str | None

    def to_json(self, old: str) -> dict[str, Any]:
        return {**self._fields(), "check": check_sum([old, self._fields()])}

    @classmethod
    def from_json(cls, content: Any, old: str) -> Alias:
        key = f"aliases.{old}"
        read = JSON.record(cls, content, key, others=("check",))
        verify_sum(content, key, [old, read._fields()])
        return read

    def _fields(self) -> Any:
        return msgspec.to_builtins(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aliases:
    """Old case key -> what it stands for now. One name has one successor and one predecessor at most, and no cycle."""

    entries: Mapping[str, Alias] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises JsonError naming the cases where two old names claim one new name, or names go round in a circle."""
        claimed: dict[str, str] = {}
        for old, alias in sorted(self.entries.items()):
            if alias.case in claimed:
                raise JsonError(f"{alias.case} would be the new name of both {claimed[alias.case]} and {old}")
            claimed[alias.case] = old
            names = [old]
            while names[-1] in self.entries:
                names.append(self.entries[names[-1]].case)
                if names[-1] == old:
                    raise JsonError(f"the names go round in a circle: {' -> '.join(names)}")

    def old_name(self, case: str) -> str | None:
        """The name before the last renaming; None where the case was never renamed."""
        return next((old for old, alias in self.entries.items() if alias.case == case), None)

    def names(self, case: str, digest: str) -> tuple[tuple[str, str], ...]:
        """(case key, digest) under which sessions of this measurement were accepted, the newest name first."""
        names = [(case, digest)]
        while (old := self.old_name(case)) is not None:
            alias = self.entries[old]
            if alias.case_digest not in (None, digest):
                break
            case, digest = old, alias.digest
            names.append((case, digest))
        return tuple(names)

    def latest_name(self, case: str) -> str:
        """The name that a case has now, after all renamings."""
        while case in self.entries:
            case = self.entries[case].case
        return case

    def bound(self, digests: Mapping[str, str]) -> Aliases:
        """With new names' digests (case key -> digest) in the aliases that did not know them yet."""
        entries = {
            old: replace(alias, case_digest=digests.get(alias.case)) if alias.case_digest is None else alias
            for old, alias in self.entries.items()
        }
        return replace(self, entries=entries)

    def renamed(self, old: str, alias: Alias) -> Aliases:
        """With one alias more. Raises BaselineError naming the cases on a clash or a circle."""
        if old in self.entries:
            raise BaselineError(f"{old} is renamed already, to {self.entries[old].case}; it cannot have two new names")
        try:
            return replace(self, entries={**self.entries, old: alias})
        except JsonError as error:
            raise BaselineError(f"cannot rename {old} to {alias.case}: {error}") from None

    def to_json(self) -> dict[str, Any]:
        entries = {old: alias.to_json(old) for old, alias in self.entries.items()}
        return {"format": FORMAT, "version": VERSION, "aliases": entries}

    @classmethod
    def from_json(cls, content: Any) -> Aliases:
        """Expects format and version to be checked. Raises JsonError and WrongEntryError naming the place."""
        check_keys("", content, ("format", "version", "aliases"))
        entries = take(content, "aliases", (dict,))
        return cls(entries={old: Alias.from_json(entries[old], old) for old in entries})


def alias_path(directory: Path) -> Path:
    return directory / FILE_NAME
