"""What a person does to accepted baselines: reject a session, let cases begin anew, drop the keys that nobody runs,
move the anchor to other sessions after a change of speed that is accepted for good, and rename a case.

Each change reads all files under the directory's lock, and replaces those that differ one by one. A kill between two of
them leaves whole files, and the same command again does the rest.

A renamed case's sessions stay where they are, and aliases.json says under which names they are found. The old digest is
that of the newest session accepted under the old name. The new one is taken from the new name's newest session where
there is one, and is else bound when the first session is accepted under the new name.

Worked example: after moving to the newest 5, a case of sessions 1 to 12 has the anchor 8 to 12, and 1 to 7 are window.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from pytest_npubench.core.short_id import named, not_one
from pytest_npubench.errors import BaselineError, did_you_mean
from pytest_npubench.store.acceptance import is_case_key
from pytest_npubench.store.accepted_session import AcceptedSession
from pytest_npubench.store.aliases import FILE_NAME, Alias, Aliases
from pytest_npubench.store.baseline_files import remove_baseline_file
from pytest_npubench.store.baseline_format import BaselineCase, BaselineFile, Rejection, Reset
from pytest_npubench.store.baselines import Baselines, changing, now, write_changes
from pytest_npubench.store.session_window import continued, merged

NUM_NAMED = 5
Group = tuple[str, str]
"""The key's digest and the case's latest name: a history that may stand under several names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineChange:
    """What a command did: the baseline sessions it was about, how many cases changed, the files written."""

    sessions: tuple[str, ...]
    num_cases: int
    paths: tuple[Path, ...]


def means(name: str, wanted: str) -> bool:
    """Whether a baseline session is the one wanted, or one of its devices'."""
    return name == wanted or name.startswith(f"{wanted}@")


def newest_names(baselines: Baselines) -> str:
    """The newest sessions in words, for someone who mistyped one."""
    times = {
        session.session: session.accepted_time
        for file in baselines.files
        for case in file.cases.values()
        for session in case.sessions
    }
    names = sorted(times, key=lambda name: (times[name], name), reverse=True)[:NUM_NAMED]
    return f"the newest are {', '.join(names)}" if names else "no session was accepted yet"


def reject(directory: Path, session: str, *, reason: str = "") -> BaselineChange:
    """Take a session out of every file, for good: it is neither judged against nor accepted again.

    `session` is a baseline session or a journal's session, which stands for its devices' sessions SESSION@DEVICE too.
    A session rejected already changes nothing. Raises BaselineError where no file knows it.
    """
    with changing(directory) as old:
        sessions = {name for file in old.files for name in (*file.session_names, *file.rejected)}
        names = {name for name in sessions if means(name, session)}
        if not names:
            hint = did_you_mean(session, sessions)
            raise BaselineError(f"baselines {directory}: no accepted session {session!r}; {newest_names(old)}{hint}")
        rejection = Rejection(rejected_at=now(), reason=reason)
        changed = [_without(file, names & file.session_names, rejection) for file in old.files]
        cases = [case for file in old.files for case in file.cases.values()]
        num_cases = sum(any(one.session in names for one in case.sessions) for case in cases)
        paths = write_changes(old, old.with_files(*changed))
    return BaselineChange(sessions=tuple(sorted(names)), num_cases=num_cases, paths=paths)


def reset(directory: Path, cases: Collection[str], *, reason: str, hardware: Collection[str] = ()) -> BaselineChange:
    """Let cases begin anew after an intended change: what was accepted for them goes, under every key.

    `cases` are case keys, ids, short names, or patterns of keys (`buckets/profile/*-bucket128`); `hardware` narrows
    them to its folders. The reason stands in each file that held the case, with the date: sessions that began before
    are not accepted for it any more, and are no nights of it. Raises BaselineError where no file knows a case, or
    there is no reason.
    """
    if not reason.strip():
        raise BaselineError("a reset needs a reason, which stands in the file")
    with changing(directory) as old:
        if unknown := sorted(set(hardware) - {file.hardware for file in old.files}):
            there = sorted({file.hardware for file in old.files})
            listed, hint = f"hardware: {', '.join(there) or 'none'}", did_you_mean(unknown[0], there)
            raise BaselineError(f"baselines {directory}: nothing was accepted on {unknown[0]!r}; {listed}{hint}")
        files = [file for file in old.files if not hardware or file.hardware in hardware]
        names = {name: old.aliases.latest_name(name) for file in files for name in (*file.cases, *file.resets)}
        chosen = {latest for wanted in cases for latest in _meant(directory, names, wanted)}
        new = Reset(reset_at=now(), reason=reason)
        gone = [(name, case) for file in files for name, case in file.cases.items() if names[name] in chosen]
        changed = [_anew(file, {name for name, latest in names.items() if latest in chosen}, new) for file in files]
        paths = write_changes(old, old.with_files(*changed))
    sessions = {session.session for _, case in gone for session in case.sessions}
    return BaselineChange(sessions=tuple(sorted(sessions)), num_cases=len(chosen), paths=paths)


def prune(
    directory: Path,
    *,
    keys: Collection[str] = (),
    older_than_days: float | None = None,
    keep: int | None = None,
    at: datetime | None = None,
    dry_run: bool = False,
) -> tuple[BaselineFile, ...]:
    """Drop files: those of `keys`, or old ones; returns what went, or what would go.

    Without `keys`, the newest `keep` (default 1) files of each hardware, suite and device stay, and of the others those
    go whose newest session was accepted more than `older_than_days` before `at` (default now), or all where it is None.
    Raises BaselineError on a key that no file has.
    """
    with changing(directory) as old:
        if keys:
            gone = [file for file in old.files if file.key.digest() in keys]
            digests = {file.key.digest() for file in old.files}
            if unknown := sorted(set(keys) - digests):
                listed = ", ".join(sorted(digests)) or "none"
                hint = did_you_mean(unknown[0], digests)
                raise BaselineError(f"baselines {directory}: no file has the key {unknown[0]}; keys: {listed}{hint}")
        else:
            latest = datetime.fromisoformat(now()) if at is None else at
            limit = None if older_than_days is None else latest - timedelta(days=older_than_days)
            gone = [file for file in _beyond(old.files, keep or 1) if limit is None or newest_time(file) < limit]
        if not dry_run:
            for file in gone:
                remove_baseline_file(directory, file)
    return tuple(gone)


def newest_time(file: BaselineFile) -> datetime:
    """When the file's newest session was accepted, or its last one rejected."""
    accepted = [session.accepted_time for case in file.cases.values() for session in case.sessions]
    rejected = [datetime.fromisoformat(rejection.rejected_at) for rejection in file.rejected.values()]
    return max(accepted or rejected or [datetime.fromisoformat("1970-01-01T00:00:00+00:00")])


def _without(file: BaselineFile, names: Collection[str], rejection: Rejection) -> BaselineFile:
    cases = {
        name: replace(case, sessions=tuple(session for session in case.sessions if session.session not in names))
        for name, case in file.cases.items()
    }
    return replace(
        file,
        cases={name: case for name, case in cases.items() if case.sessions},
        rejected={**file.rejected, **dict.fromkeys(names, rejection)},
    )


def _meant(directory: Path, names: Mapping[str, str], wanted: str) -> set[str]:
    """The cases, by their latest names, that a key, an id, a short name or a pattern means. Raises BaselineError where
    there are none."""
    exact = {latest for name, latest in names.items() if wanted in (name, latest)}
    if matching := exact or {latest for name, latest in names.items() if fnmatch.fnmatchcase(name, wanted)}:
        return matching
    return {the_case(directory, names, wanted)}


def the_case(directory: Path, names: Mapping[str, str], wanted: str) -> str:
    """The case, by its latest name, that a key, an id or a short name means. `names`: the latest name of each key.
    Raises BaselineError where none or more than one is meant."""
    meant = sorted({names.get(name, name) for name in named(wanted, (*names, *names.values()))})
    if len(meant) != 1:
        raise BaselineError(f"baselines {directory}: {not_one(wanted, meant, names, nothing='no accepted case')}")
    return meant[0]


def _anew(file: BaselineFile, names: Collection[str], new: Reset) -> BaselineFile:
    cases = {name for name in names if name in file.cases or name in file.resets}
    return replace(
        file,
        cases={name: case for name, case in file.cases.items() if name not in cases},
        resets={**file.resets, **dict.fromkeys(sorted(cases), new)},
    )


def _beyond(files: Iterable[BaselineFile], keep: int) -> list[BaselineFile]:
    """All but the newest `keep` files of each hardware, suite and device."""
    groups: dict[tuple[str, str, str, str], list[BaselineFile]] = {}
    for file in files:
        device = (file.hardware, file.suite, file.key.accelerator, file.key.device_class)
        groups.setdefault(device, []).append(file)
    return [file for group in groups.values() for file in sorted(group, key=newest_time)[:-keep]]


def move_anchor(
    directory: Path,
    *,
    sessions: Collection[str] = (),
    newest: int | None = None,
    key: str | None = None,
    case: str | None = None,
) -> BaselineChange:
    """Make these sessions, or the newest ones of each case, the anchor instead of those that were.

    `key` (the 8 hex digits of a file's name) and `case` (a case's key, id or short name) narrow what is changed; a case
    that holds none of the sessions stays as it is. Sessions that were anchors join the window. Raises BaselineError
    where the case or a session is not known there, or nothing was accepted there.
    """
    with changing(directory) as old:
        names = {name: old.aliases.latest_name(name) for file in old.files for name in file.cases}
        wanted_case = None if case is None else the_case(directory, names, case)
        histories = _histories(old, key, wanted_case)
        if not histories:
            raise BaselineError(f"baselines {directory}: no accepted session{_where(key, case)}")
        anchors = {group: _chosen(found, sessions, newest) for group, found in histories.items()}
        anchored = {name for chosen in anchors.values() for name in chosen}
        if missing := [wanted for wanted in sessions if not any(means(name, wanted) for name in anchored)]:
            what = f"no accepted session {missing[0]!r}{_where(key, case)}; {newest_names(old)}"
            hint = did_you_mean(missing[0], {session.session for entries in histories.values() for session in entries})
            raise BaselineError(f"baselines {directory}: {what}{hint}")
        changed = [_anchored(old, file, anchors) for file in old.files]
        paths = write_changes(old, old.with_files(*changed))
    pairs = [
        (file.cases[name], case)
        for file, new in zip(old.files, changed, strict=True)
        for name, case in new.cases.items()
    ]
    return BaselineChange(
        sessions=tuple(sorted(anchored)), num_cases=sum(was != case for was, case in pairs), paths=paths
    )


def _histories(baselines: Baselines, key: str | None, case: str | None) -> dict[Group, list[AcceptedSession]]:
    """The sessions of each history that is meant, in the order accepted."""
    histories: dict[Group, list[AcceptedSession]] = {}
    for file in baselines.files:
        for name, entry in file.cases.items():
            group = _group(baselines, file, name)
            if key in (None, group[0]) and (case is None or case == group[1]):
                histories.setdefault(group, []).extend(entry.sessions)
    # stable: sessions accepted in the same second stay in the order of their entries
    return {group: sorted(found, key=lambda session: session.accepted_time) for group, found in histories.items()}


def _group(baselines: Baselines, file: BaselineFile, case: str) -> Group:
    return file.key.digest(), baselines.aliases.latest_name(case)


def _chosen(history: Sequence[AcceptedSession], sessions: Collection[str], newest: int | None) -> frozenset[str]:
    if newest is not None:
        return frozenset(session.session for session in history[-newest:])
    return frozenset(one.session for one in history if any(means(one.session, wanted) for wanted in sessions))


def _anchored(baselines: Baselines, file: BaselineFile, anchors: Mapping[Group, Collection[str]]) -> BaselineFile:
    cases = dict(file.cases)
    for name, case in file.cases.items():
        if chosen := anchors.get(_group(baselines, file, name)):
            sessions = tuple(replace(one, anchor=one.session in chosen) for one in case.sessions)
            cases[name] = replace(case, sessions=sessions)
    return replace(file, cases=cases)


def _where(key: str | None, case: str | None) -> str:
    return (f" under the key {key}" if key else "") + (f" of {case}" if case else "")


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
    taken_over = [case for case in _entries(before, name) if case.digest == alias.digest]
    return Renaming(old=name, alias=alias, num_sessions=sum(len(case.sessions) for case in taken_over), path=path)


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
    cases = sorted({name for file in baselines.files for name in file.cases})
    return did_you_mean(case, cases, most=3)
