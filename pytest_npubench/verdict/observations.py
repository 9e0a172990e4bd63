"""What was measured, as the table that the gate works on: one row a case, one column a baseline session.

The unit of analysis is the median of one process (entries); a session's entry is the mean over its processes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pytest_npubench.stats.checks import FloatArray
from pytest_npubench.verdict.entries import (
    Better,
    Process,
    Scale,
    Session,
    Sessions,
    UnusableError,
    many_entries,
    session_entries,
)

__all__ = ["Better", "ObservationTable", "Process", "Scale", "Session", "Sessions", "UnusableError", "session_entries"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseEntries:
    """Entries of one case, [R] a session, or what is wrong with a session: tonight's, the accepted ones by name, oldest
    first, and those of the anchor."""

    current: FloatArray | str
    sessions: Mapping[str, FloatArray | str]
    anchor: Collection[FloatArray | str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationTable:
    """C cases, K sessions, R processes at most. NaN where a case has no entry; more is worse.

    baseline: [C, K], columns in the order accepted. num_processes: [C], of a baseline session, on average.
    current: [C, R], a row's entries to the left. repeats: [C] sums of squares between processes of one session, and
    repeats_freedom: [C] their degrees of freedom (see `repeats_of`).
    """

    cases: tuple[str, ...]
    baseline: FloatArray
    current: FloatArray
    num_processes: FloatArray
    repeats: FloatArray
    repeats_freedom: FloatArray

    def mirrored(self) -> ObservationTable:
        """The table in which more is better."""
        return replace(self, baseline=-self.baseline, current=-self.current)


def read_cases(
    baseline: Mapping[str, Sessions],
    current: Mapping[str, Session],
    anchor: Mapping[str, Sessions],
    scale: Scale,
    better: Better,
) -> dict[str, CaseEntries]:
    """The entries of every case in `current`. A case that the others do not know has none there."""
    accepted = {case: _named(baseline.get(case, ())) for case in current}
    anchored = {case: _named(anchor.get(case, ())) for case in current}
    everything: list[Session] = list(current.values())
    everything += [session for sessions in accepted.values() for session in sessions.values()]
    everything += [session for sessions in anchored.values() for session in sessions.values()]
    entries = iter(many_entries(everything, scale, better))
    tonight = {case: next(entries) for case in current}
    known = {case: {name: next(entries) for name in sessions} for case, sessions in accepted.items()}
    old = {case: [next(entries) for _ in sessions] for case, sessions in anchored.items()}
    return {case: CaseEntries(current=tonight[case], sessions=known[case], anchor=old[case]) for case in current}


def make_table(cases: Mapping[str, CaseEntries]) -> ObservationTable:
    """The table of cases without a session that is wrong."""
    sessions = [{name: usable(found) for name, found in case.sessions.items()} for case in cases.values()]
    tonight = [usable(case.current) for case in cases.values()]
    place = {name: index for index, name in enumerate(_columns([list(names) for names in sessions]))}
    table = ObservationTable(
        cases=tuple(cases),
        baseline=np.full((len(cases), len(place)), np.nan),
        current=rectangle(tonight),
        num_processes=np.array([np.mean([len(found) for found in named.values()]) for named in sessions]),
        repeats=np.zeros(len(cases)),
        repeats_freedom=np.zeros(len(cases)),
    )
    for row, named in enumerate(sessions):
        table.baseline[row, [place[name] for name in named]] = [found.sum() / len(found) for found in named.values()]
        for found in (*named.values(), tonight[row]):
            if len(found) > 1:
                squares, freedom = repeats_of(found[None])
                table.repeats[row] += squares[0]
                table.repeats_freedom[row] += freedom[0]
    return table


def anchor_entries(cases: Mapping[str, CaseEntries]) -> FloatArray:
    """Entries of the anchor sessions, [C, A], NaN for none."""
    return rectangle([np.array([usable(found).mean() for found in case.anchor]) for case in cases.values()])


def usable(found: FloatArray | str) -> FloatArray:
    """The entries themselves. Raises UnusableError where there are none."""
    if isinstance(found, str):
        raise UnusableError(found)
    return found


def rectangle(rows: Iterable[FloatArray]) -> FloatArray:
    """Rows of unequal length as one array, filled up with NaN."""
    rows = list(rows)
    filled = np.full((len(rows), max(map(len, rows), default=0)), np.nan)
    for index, values in enumerate(rows):
        filled[index, : len(values)] = values
    return filled


def repeats_of(entries: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Sums of squares between the processes of one session and their degrees of freedom, [C] each, of entries [C, R].

    A suspect is measured again because its first process was slow, so the first says too much about the spread: it is
    left out.
    """
    again = entries[:, 1:]
    present = np.isfinite(again)
    count = np.maximum(present.sum(axis=1), 1)
    mean = np.where(present, again, 0.0).sum(axis=1) / count
    return np.where(present, (again - mean[:, None]) ** 2, 0.0).sum(axis=1), count - 1.0


def _columns(cases: Sequence[Sequence[str]]) -> list[str]:
    """The sessions of all cases in the order accepted, as far as each case's own order tells it."""
    columns: list[str] = []
    known: set[str] = set()
    for names in sorted(cases, key=len, reverse=True):
        if known.issuperset(names):
            continue
        following = 0
        for name in names:
            if name in known:
                following = columns.index(name) + 1
            else:
                columns.insert(following, name)
                known.add(name)
                following += 1
    return columns


def _named(sessions: Sessions) -> dict[str, Session]:
    """Sessions by name; those of a list are named by their age, so that the newest ones of all cases are one night.

    What is no list of sessions becomes one session, which then says what is wrong with it.
    """
    if isinstance(sessions, Mapping):
        return dict(sessions)
    try:
        listed = list(sessions)
    except TypeError:
        listed = [sessions]  # type: ignore[list-item]
    return {f"-{len(listed) - index}": session for index, session in enumerate(listed)}
