"""What was measured, as the table that the gate works on: one row a case, one column a baseline session.

The unit of analysis is the median of one process; a session's entry is the mean over its processes. On the ratio scale
entries are logarithms, so a difference of 0.01 is 1 %; on the difference scale they are the values themselves (a
prediction error, an attained fraction). Entries are turned so that more is always worse: times -1 where higher is
better.

Worked example: sessions of one process each, ((0.010, 0.012, 0.011),) and ((0.011,),), both have the entry
log 0.011 = -4.51.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from pytest_npubench.stats.checks import FloatArray

Process = Sequence[float]
Session = Sequence[Process]
Sessions = Sequence[Session] | Mapping[str, Session]
Scale = Literal["ratio", "difference"]
Better = Literal["lower", "higher"]


class UnusableError(ValueError):
    """Samples that have no place in the table; the text says which and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
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

    def mirrored(self) -> Table:
        """The table in which more is better."""
        return replace(self, baseline=-self.baseline, current=-self.current)


def make_table(baseline: Mapping[str, Sessions], current: Mapping[str, Session], scale: Scale, better: Better) -> Table:
    """The table of the cases in `current`. Raises UnusableError: the caller has checked every session before."""
    cases = tuple(current)
    columns = _columns([baseline[case] for case in cases])
    width = max((len(current[case]) for case in cases), default=1)
    table = Table(
        cases=cases,
        baseline=np.full((len(cases), len(columns)), np.nan),
        current=np.full((len(cases), width), np.nan),
        num_processes=np.ones(len(cases)),
        repeats=np.zeros(len(cases)),
        repeats_freedom=np.zeros(len(cases)),
    )
    place = {name: index for index, name in enumerate(columns)}
    for row, case in enumerate(cases):
        sessions = _named(baseline[case])
        for name, session in sessions.items():
            entries = session_entries(session, scale, better)
            table.baseline[row, place[name]] = entries.mean()
            _add(table, row, entries)
        table.num_processes[row] = np.mean([len(session) for session in sessions.values()]) if sessions else 1
        entries = session_entries(current[case], scale, better)
        table.current[row, : len(entries)] = entries
        _add(table, row, entries)
    return table


def session_entries(session: Session, scale: Scale, better: Better) -> FloatArray:
    """One entry a process, [R]. Raises UnusableError naming the process and what is wrong with it."""
    if not session:
        raise UnusableError("no process")
    medians = [_median(samples, index, scale) for index, samples in enumerate(session)]
    entries = np.log(medians) if scale == "ratio" else np.asarray(medians)
    return np.asarray(-entries if better == "higher" else entries, dtype=np.float64)


def session_list(sessions: Sessions) -> list[Session]:
    """The sessions without their names, in their order."""
    return list(_named(sessions).values())


def _median(samples: Process, index: int, scale: Scale) -> float:
    values = np.asarray(samples, dtype=np.float64)
    if values.ndim != 1 or not values.size:
        raise UnusableError(f"process {index}: want a list of samples, found {_shown(samples)}")
    if not np.isfinite(values).all():
        raise UnusableError(f"process {index}: sample {int(np.argmin(np.isfinite(values)))} is not a finite number")
    median = float(np.median(values))
    if scale == "ratio" and not median > 0:
        raise UnusableError(f"process {index}: its median is {median:g}; a ratio needs one above 0")
    return median


def _shown(samples: object) -> str:
    text = repr(samples)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _add(table: Table, row: int, entries: FloatArray) -> None:
    squares, freedom = repeats_of(entries[None])
    table.repeats[row] += squares[0]
    table.repeats_freedom[row] += freedom[0]


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


def _columns(cases: Sequence[Sessions]) -> list[str]:
    """The sessions of all cases, in the order accepted: a session stands before those that follow it in any case."""
    longest_first = sorted(cases, key=len, reverse=True)
    columns: dict[str, None] = {}
    for sessions in longest_first:
        names = list(_named(sessions))
        fresh = [name for name in names if name not in columns]
        columns.update(dict.fromkeys(fresh))
    return list(columns)


def _named(sessions: Sessions) -> dict[str, Session]:
    """Sessions by name; those of a list are named by their age, so that the newest ones of all cases are one night."""
    if isinstance(sessions, Mapping):
        return dict(sessions)
    return {f"-{len(sessions) - index}": session for index, session in enumerate(sessions)}
