"""What a person does to accepted baselines: reject a session, let cases begin anew, drop the keys that nobody runs.

Each change reads all files under the directory's lock, and replaces those that differ one by one. A kill between two of
them leaves whole files, and the same command again does the rest.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from pytest_npubench.core.short_id import named, not_one
from pytest_npubench.errors import BaselineError, did_you_mean
from pytest_npubench.store.baseline_format import BaselineFile, Rejection, Reset, remove_baseline_file
from pytest_npubench.store.baselines import Baselines, changing, now, write_changes

NUM_NAMED = 5


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
        known = {name for file in old.files for name in (*file.session_names, *file.rejected)}
        names = {name for name in known if means(name, session)}
        if not names:
            hint = did_you_mean(session, known)
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
            known, hint = f"hardware: {', '.join(there) or 'none'}", did_you_mean(unknown[0], there)
            raise BaselineError(f"baselines {directory}: nothing was accepted on {unknown[0]!r}; {known}{hint}")
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
            known = {file.key.digest() for file in old.files}
            if unknown := sorted(set(keys) - known):
                listed = ", ".join(sorted(known)) or "none"
                hint = did_you_mean(unknown[0], known)
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
    if found := exact or {latest for name, latest in names.items() if fnmatch.fnmatchcase(name, wanted)}:
        return found
    return {the_case(directory, names, wanted)}


def the_case(directory: Path, names: Mapping[str, str], wanted: str) -> str:
    """The case, by its latest name, that a key, an id or a short name means. `names`: the latest name of each key.
    Raises BaselineError where none or more than one is meant."""
    meant = sorted({names.get(name, name) for name in named(wanted, (*names, *names.values()))})
    if len(meant) != 1:
        raise BaselineError(f"baselines {directory}: {not_one(wanted, meant, names, nothing='no accepted case')}")
    return meant[0]


def _anew(file: BaselineFile, names: Collection[str], new: Reset) -> BaselineFile:
    known = {name for name in names if name in file.cases or name in file.resets}
    return replace(
        file,
        cases={name: case for name, case in file.cases.items() if name not in known},
        resets={**file.resets, **dict.fromkeys(sorted(known), new)},
    )


def _beyond(files: Iterable[BaselineFile], keep: int) -> list[BaselineFile]:
    """All but the newest `keep` files of each hardware, suite and device."""
    groups: dict[tuple[str, str, str, str], list[BaselineFile]] = {}
    for file in files:
        device = (file.hardware, file.suite, file.key.accelerator, file.key.device_class)
        groups.setdefault(device, []).append(file)
    return [file for group in groups.values() for file in sorted(group, key=newest_time)[:-keep]]
