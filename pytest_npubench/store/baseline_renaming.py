"""Renaming a case: its sessions stay where they are, and aliases.json says under which names they are found.

The old digest is that of the newest session accepted under the old name. The new one is taken from the new name's
newest session where there is one, and is else bound when the first session is accepted under the new name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_npubench.errors import BaselineError, did_you_mean
from pytest_npubench.store.acceptance import is_case_key
from pytest_npubench.store.accepted_session import continued, merged
from pytest_npubench.store.aliases import FILE_NAME, Alias, Aliases
from pytest_npubench.store.baseline_format import BaselineCase, BaselineFile
from pytest_npubench.store.baselines import Baselines, changing, write_changes


@dataclass(frozen=True, slots=True, kw_only=True)
class Renaming:
    """An alias that was written: how many sessions under the old digest the new name has taken over."""

    old: str
    alias: Alias
    num_sessions: int
    path: Path


def rename(directory: Path, old: str, new: str) -> Renaming:
    """Let `new` have the history of `old`, both case keys.

    Raises BaselineError where nothing was accepted under the old name, a name is taken, or names go round in a circle.
    """
    if not is_case_key(new):
        raise BaselineError(f"case {new!r}: want SUITE/KIND/ID with a suite of letters, digits and . _ -")
    with changing(directory) as before:
        aliases, name = _with_alias(before, old, new)
        alias = aliases.entries[name]
        files = [_continued(before, file, name, alias) for file in before.files]
        path = write_changes(before, replace(before, aliases=aliases).with_files(*files))[0]
    found = [case for case in _entries(before, name) if case.digest == alias.digest]
    return Renaming(old=name, alias=alias, num_sessions=sum(len(case.sessions) for case in found), path=path)


def _with_alias(before: Baselines, old: str, new: str) -> tuple[Aliases, str]:
    """The aliases with the renaming, and the name it leads from.

    A name to which a case was renamed but under which nothing was accepted is skipped, because nobody knows which
    digest it would have had: A -> B -> C becomes A -> C.
    """
    digest, aliases = _newest_digest(_entries(before, old)), before.aliases
    if new != old and aliases.latest_name(new) == old:
        raise BaselineError(
            f"cannot rename {old} to {new}: {new} was renamed to {old}; to undo that, take its entry out of {FILE_NAME}"
        )
    earlier = aliases.old_name(old)
    if digest is None and earlier is not None and old not in aliases.entries:
        digest = aliases.entries[earlier].digest
        aliases = Aliases(entries={name: alias for name, alias in aliases.entries.items() if name != earlier})
        old = earlier
    if digest is None:
        raise BaselineError(f"baselines {before.directory}: no session was accepted for {old!r}{_near(before, old)}")
    case_digest = _newest_digest(_entries(before, new))
    return aliases.renamed(old, Alias(case=new, digest=digest, case_digest=case_digest)), old


def _continued(before: Baselines, file: BaselineFile, old: str, alias: Alias) -> BaselineFile:
    """A file whose sessions under the new name no longer begin an anchor of their own, where the old name has one."""
    earlier = merged(
        other.cases[old].sessions for other in before.files if other.key == file.key and old in other.cases
    )
    case = file.cases.get(alias.case)
    if case is None or not earlier:
        return file
    sessions = continued(earlier, case.sessions)
    return replace(file, cases={**file.cases, alias.case: replace(case, sessions=sessions)})


def _entries(baselines: Baselines, case: str) -> list[BaselineCase]:
    return [file.cases[case] for file in baselines.files if case in file.cases]


def _newest_digest(entries: Iterable[BaselineCase]) -> str | None:
    newest = max(entries, key=lambda case: max(one.accepted_time for one in case.sessions), default=None)
    return None if newest is None else newest.digest


def _near(baselines: Baselines, case: str) -> str:
    known = sorted({name for file in baselines.files for name in file.cases})
    return did_you_mean(case, known, most=3)
