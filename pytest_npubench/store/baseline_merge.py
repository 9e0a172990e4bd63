"""Two folders of baselines made one: what two runners, or two branches, accepted apart.

Sessions are known by their names: one that both folders hold counts once, and with other samples it is an error. What
comes out does not depend on which folder takes the other in:

- sessions stand by the time they were accepted; all that either folder calls anchor are, of more than 5 the oldest;
  where a person moved the anchor in one folder alone, it is that folder's;
- gate and margin of a metric are those of the newest session, frozen values those that were first;
- of a case that measures something else in one folder (another digest) the newer one stays;
- what either folder rejected or reset is rejected or reset.

Worked example: one runner accepted s1 and s3, another s2: merged either way, both folders hold s1, s2 and s3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from pytest_npubench.errors import BaselineError
from pytest_npubench.store.accepted_session import AcceptedSession, Frozen, Quantity, Sessions, began_at
from pytest_npubench.store.aliases import Alias, Aliases
from pytest_npubench.store.baseline_changes import BaselineChange
from pytest_npubench.store.baseline_format import BaselineCase, BaselineFile, Rejection, Reset
from pytest_npubench.store.baselines import Baselines, changing, write_changes
from pytest_npubench.store.session_window import (
    NUM_ANCHOR_SESSIONS,
    kept,
    of_newest_level,
    same_samples,
    with_newest_answers,
)

Name = TypeVar("Name")
Value = TypeVar("Value")


def merge(directory: Path, other: Path) -> BaselineChange:
    """Take the sessions of the baselines in `other` into those in `directory`, which is made where it is missing.

    Returns the sessions that were not there. Raises BaselineError where a file of either cannot be read, a session has
    other samples or a metric another unit in the other folder, or a case is renamed in two ways; then nothing was
    written.
    """
    theirs = Baselines.load(other)
    with changing(directory, missing_ok=True) as old:
        new = merged_baselines(old, theirs)
        paths = write_changes(old, new)
    before = {name for file in old.files for name in file.session_names}
    after = {name for file in new.files for name in file.session_names}
    return BaselineChange(sessions=tuple(sorted(after - before)), num_cases=_num_changed(old, new), paths=paths)


def merged_baselines(ours: Baselines, theirs: Baselines) -> Baselines:
    """Merges both into the directory of ours. Raises BaselineError as `merge` does."""
    both = replace(ours, files=(*ours.files, *theirs.files), aliases=_merged_aliases(ours.aliases, theirs.aliases))
    our_files, their_files = (
        {file.relative_path: _cleared(both, file) for file in side.files} for side in (ours, theirs)
    )
    files = _merged(our_files, their_files, lambda _, a, b: _merged_file(a, b))
    return replace(both, files=tuple(files.values()))


def _merged_file(ours: BaselineFile, theirs: BaselineFile) -> BaselineFile:
    return replace(
        ours,
        cases=_merged(ours.cases, theirs.cases, _merged_case),
        rejected=_merged(ours.rejected, theirs.rejected, _first_rejection),
        resets=_merged(ours.resets, theirs.resets, _last_reset),
        stacks={**theirs.stacks, **ours.stacks},
    )


def _first_rejection(_: str, ours: Rejection, theirs: Rejection) -> Rejection:
    return min(ours, theirs, key=lambda rejection: (datetime.fromisoformat(rejection.rejected_at), rejection.reason))


def _last_reset(_: str, ours: Reset, theirs: Reset) -> Reset:
    return max(ours, theirs, key=lambda reset: (reset.time, reset.reason))


def _merged(
    ours: Mapping[Name, Value], theirs: Mapping[Name, Value], join: Callable[[Name, Value, Value], Value]
) -> dict[Name, Value]:
    return {
        name: join(name, ours[name], theirs[name]) if name in ours and name in theirs else {**ours, **theirs}[name]
        for name in (*ours, *(name for name in theirs if name not in ours))
    }


def _merged_case(name: str, ours: BaselineCase, theirs: BaselineCase) -> BaselineCase:
    if ours.digest != theirs.digest:
        return max(ours, theirs, key=lambda case: (_newest(case.sessions), case.digest))
    older, newer = sorted((ours, theirs), key=lambda case: _newest(case.sessions))
    for metric in older.metrics.keys() & newer.metrics.keys():
        _check_same(name, metric, older.metrics[metric], newer.metrics[metric])
    quantities = {**older.metrics, **newer.metrics}
    return BaselineCase(
        digest=ours.digest,
        metrics=quantities,
        sessions=with_newest_answers(
            kept(_merged_sessions(name, ours.sessions, theirs.sessions, quantities)), quantities
        ),
        frozen=_first(name, ours.frozen, theirs.frozen),
    )


def _check_same(case: str, metric: str, ours: Quantity, theirs: Quantity) -> None:
    if (ours.unit, ours.better) != (theirs.unit, theirs.better):
        raise BaselineError(
            f"{case}, metric {metric}: accepted in {ours.unit!r}, {ours.better} is better, in one folder; "
            f"in {theirs.unit!r}, {theirs.better}, in the other"
        )


def _merged_sessions(case: str, ours: Sessions, theirs: Sessions, quantities: Mapping[str, Quantity]) -> Sessions:
    sessions_by_name = {session.session: session for session in ours}
    for session in theirs:
        first = sessions_by_name.setdefault(session.session, session)
        if not same_samples(first.metrics, session.metrics, quantities):
            raise BaselineError(f"{case}: the session {session.session} stands in both folders, with other samples")
        # accepted twice, by two runners: it counts from the first time on
        sessions_by_name[session.session] = min(
            first, session, key=lambda entry: (entry.accepted_time, entry.git_revision or "")
        )
    level = of_newest_level(tuple(sorted(sessions_by_name.values(), key=_accepted)))
    names = {session.session for session in level}
    anchors = _anchors(*(tuple(entry for entry in sessions if entry.session in names) for sessions in (ours, theirs)))
    return tuple(replace(session, anchor=session.session in anchors) for session in level)


def _anchors(ours: Sessions, theirs: Sessions) -> frozenset[str]:
    moved = [sessions for sessions in (ours, theirs) if _was_moved(sessions)]
    if len(moved) == 1:
        return frozenset(session.session for session in moved[0] if session.anchor)
    oldest = sorted((session for session in (*ours, *theirs) if session.anchor), key=_accepted)
    return frozenset(list(dict.fromkeys(session.session for session in oldest))[:NUM_ANCHOR_SESSIONS])


def _was_moved(sessions: Sessions) -> bool:
    """Whether an anchor stands behind a session that is none: only a person puts it there."""
    flags = [session.anchor for session in sessions]
    return flags != sorted(flags, reverse=True)


def _first(case: str, ours: Frozen | None, theirs: Frozen | None) -> Frozen | None:
    fixed = [frozen for frozen in (ours, theirs) if frozen is not None]
    if len(fixed) == 2 and fixed[0].session == fixed[1].session and fixed[0].values != fixed[1].values:
        raise BaselineError(f"{case}: the session {fixed[0].session} fixed other values in the other folder")
    return min(fixed, key=lambda frozen: frozen.age, default=None)


def _cleared(both: Baselines, file: BaselineFile) -> BaselineFile:
    """Drops what either folder rejected or reset before anything is joined, so that nothing of it has a say."""
    rejected: dict[str, Rejection] = {}
    for other in both.files:
        for name in other.rejected.keys() & file.session_names:
            rejected[name] = _first_rejection(name, other.rejected[name], rejected.get(name, other.rejected[name]))
    cases = {}
    for name, case in file.cases.items():
        reset = both.reset_of(name, file.key)
        sessions = tuple(
            session
            for session in case.sessions
            if session.session not in rejected and (reset is None or session.began_at >= reset.time)
        )
        if sessions:
            frozen = case.frozen
            if frozen and reset and began_at(frozen.session, frozen.accepted_at) < reset.time:
                frozen = None
            cases[name] = replace(case, sessions=sessions, frozen=frozen)
    return replace(file, cases=cases, rejected={**file.rejected, **rejected})


def _merged_aliases(ours: Aliases, theirs: Aliases) -> Aliases:
    return Aliases(entries=_merged(ours.entries, theirs.entries, _merged_alias))


def _merged_alias(old: str, ours: Alias, theirs: Alias) -> Alias:
    bound = replace(ours, case_digest=ours.case_digest or theirs.case_digest)
    if bound != replace(theirs, case_digest=theirs.case_digest or ours.case_digest):
        raise BaselineError(f"{old} is renamed to {ours.case} in one folder and to {theirs.case} in the other")
    return bound


def _newest(sessions: Iterable[AcceptedSession]) -> tuple[object, ...]:
    return max(_accepted(session) for session in sessions)


def _accepted(session: AcceptedSession) -> tuple[datetime, str]:
    return session.accepted_time, session.session


def _num_changed(old: Baselines, new: Baselines) -> int:
    before = {(file.relative_path, name): case for file in old.files for name, case in file.cases.items()}
    after = {(file.relative_path, name): case for file in new.files for name, case in file.cases.items()}
    return sum(before.get(place) != after.get(place) for place in before.keys() | after.keys())
