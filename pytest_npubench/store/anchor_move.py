"""Moving the anchor of cases to sessions that a person chose: after a change of speed that is accepted for good.

Worked example: after moving to the newest 5, a case of sessions 1 to 12 has the anchor 8 to 12, and 1 to 7 are window.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pytest_npubench.errors import BaselineError, did_you_mean
from pytest_npubench.store.accepted_session import AcceptedSession
from pytest_npubench.store.baseline_changes import BaselineChange, means, newest_names, the_case
from pytest_npubench.store.baseline_format import BaselineFile
from pytest_npubench.store.baselines import Baselines, changing, write_changes

Group = tuple[str, str]  # the key's digest and the case's latest name: a history that may stand under several names


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
        held = _held(old, key, wanted_case)
        if not held:
            raise BaselineError(f"baselines {directory}: no accepted session{_where(key, case)}")
        anchors = {group: _chosen(found, sessions, newest) for group, found in held.items()}
        anchored = {name for chosen in anchors.values() for name in chosen}
        if missing := [wanted for wanted in sessions if not any(means(name, wanted) for name in anchored)]:
            what = f"no accepted session {missing[0]!r}{_where(key, case)}; {newest_names(old)}"
            hint = did_you_mean(missing[0], {session.session for entries in held.values() for session in entries})
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


def _held(baselines: Baselines, key: str | None, case: str | None) -> dict[Group, list[AcceptedSession]]:
    """The sessions of each history that is meant, in the order accepted."""
    held: dict[Group, list[AcceptedSession]] = {}
    for file in baselines.files:
        for name, entry in file.cases.items():
            group = _group(baselines, file, name)
            if key in (None, group[0]) and (case is None or case == group[1]):
                held.setdefault(group, []).extend(entry.sessions)
    # stable: sessions accepted in the same second stay in the order of their entries
    return {group: sorted(found, key=lambda session: session.accepted_time) for group, found in held.items()}


def _group(baselines: Baselines, file: BaselineFile, case: str) -> Group:
    return file.key.digest(), baselines.aliases.latest_name(case)


def _chosen(found: Sequence[AcceptedSession], sessions: Collection[str], newest: int | None) -> frozenset[str]:
    if newest is not None:
        return frozenset(session.session for session in found[-newest:])
    return frozenset(one.session for one in found if any(means(one.session, wanted) for wanted in sessions))


def _anchored(baselines: Baselines, file: BaselineFile, anchors: Mapping[Group, Collection[str]]) -> BaselineFile:
    cases = dict(file.cases)
    for name, case in file.cases.items():
        if chosen := anchors.get(_group(baselines, file, name)):
            sessions = tuple(replace(one, anchor=one.session in chosen) for one in case.sessions)
            cases[name] = replace(case, sessions=sessions)
    return replace(file, cases=cases)


def _where(key: str | None, case: str | None) -> str:
    return (f" under the key {key}" if key else "") + (f" of {case}" if case else "")
