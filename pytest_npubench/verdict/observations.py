"""From samples to entries: one figure of each process, as a logarithm on the ratio scale.

Times and rates enter by their better quartile, the lower one of times: whatever else a machine does makes samples worse
and none better, so that quartile moves less from night to night than the median (figures: docs/measurements).
On the difference scale entries are the medians of the values themselves (a prediction error, an attained fraction).
Entries are turned so that more is always worse: times -1 where higher is better. On the ratio scale a difference of
0.01 is 1 %.

Worked example: a session of one process, ((0.010, 0.012, 0.011, 0.019, 0.013),), has the entry log 0.011 = -4.51.

A Rule is what the caller of the gate decides: margin, direction, scale and group.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pytest_npubench.errors import ConfigError
from pytest_npubench.stats.checks import FloatArray, fraction

Process = Sequence[float]
Session = Sequence[Process]
Sessions = Sequence[Session] | Mapping[str, Session]
Scale = Literal["ratio", "difference"]
Better = Literal["lower", "higher"]
MIN_SESSIONS = 3
"""Accepted sessions below which nothing is said."""
MAX_SIZE = 1e100  # a square of more overflows
BETTER_QUARTILE = {"lower": 0.25, "higher": 0.75}


class UnusableError(ValueError):
    """Samples that cannot be judged; the text says which and why."""


def session_entries(session: Session, scale: Scale, better: Better) -> FloatArray:
    """One entry a process, [R]. Raises UnusableError naming the process and what is wrong with it."""
    (entries,) = many_entries([session], scale, better)
    if isinstance(entries, str):
        raise UnusableError(entries)
    return entries


def many_entries(
    sessions: Iterable[Session], scale: Scale, better: Better, level: float | None = None
) -> list[FloatArray | str]:
    """Returns the entries [R] of each session, or what is wrong with it; all at once, many times as fast as one by one.
    `level`: of another quantile than the entry's own."""
    processes = [_listed(session) for session in sessions]
    if level is None:
        level = BETTER_QUARTILE[better] if scale == "ratio" else 0.5
    figures = iter(_figures([process for session in processes for process in session or ()], scale, level))
    return [_turned([next(figures) for _ in session or ()], session is None, scale, better) for session in processes]


def _listed(session: object) -> list[Process] | None:
    """Returns the processes of a session, None where it has none to list."""
    try:
        return None if isinstance(session, str) else list(session)  # type: ignore[call-overload]
    except TypeError:
        return None


def _turned(figures: list[float | str], is_no_list: bool, scale: Scale, better: Better) -> FloatArray | str:
    if is_no_list:
        return "want a list of processes, each a list of numbers"
    if not figures:
        return "no process"
    for index, figure in enumerate(figures):
        if isinstance(figure, str):
            return f"process {index}: {figure}"
    entries = np.log(np.array(figures, dtype=np.float64)) if scale == "ratio" else np.array(figures, dtype=np.float64)
    return np.asarray(-entries if better == "higher" else entries)


def _figures(processes: list[Process], scale: Scale, level: float) -> list[float | str]:
    """Returns that quantile of each process or what is wrong with it; those of one length as the rows of one array."""
    by_length: dict[int, list[int]] = {}
    for index, samples in enumerate(processes):
        by_length.setdefault(_length(samples), []).append(index)
    figures: list[float | str] = [""] * len(processes)
    for length, indices in by_length.items():
        chosen = [processes[index] for index in indices]
        rows = _numbers(chosen, 2) if length > 0 else None
        of_length: list[float | str]
        if rows is not None and np.isfinite(rows).all():
            of_length = [_checked(figure, scale) for figure in np.quantile(rows, level, axis=1).tolist()]
        else:
            of_length = [_figure(samples, scale, level) for samples in chosen]
        for index, figure in zip(indices, of_length, strict=True):
            figures[index] = figure
    return figures


def _length(samples: Process) -> int:
    return len(samples) if hasattr(samples, "__len__") else 0


def _numbers(values: object, num_dimensions: int) -> FloatArray | None:
    """Returns the values as floats where they are numbers in as many dimensions; text that reads like a number is
    none."""
    try:
        array = np.asarray(values)
    except (TypeError, ValueError):
        return None
    is_usable = array.ndim == num_dimensions and array.dtype.kind in "fiu"
    return array.astype(np.float64) if is_usable else None


def _figure(samples: Process, scale: Scale, level: float) -> float | str:
    values = _numbers(samples, 1)
    if values is None or not values.size:
        return f"want a list of numbers, found {_shown(samples)}"
    if not np.isfinite(values).all():
        return f"sample {int(np.argmin(np.isfinite(values)))} is not a finite number"
    return _checked(float(np.quantile(values, level)), scale)


def _checked(figure: float, scale: Scale) -> float | str:
    if scale == "ratio" and not figure > 0:
        return f"its better quartile is {figure:g}; a ratio needs one above 0"
    if abs(figure) > MAX_SIZE:
        name = "better quartile" if scale == "ratio" else "median"
        return f"its {name} is {figure:g}; want one of at most {MAX_SIZE:g}"
    return figure


def _shown(samples: object) -> str:
    text = repr(samples)
    return text if len(text) <= 40 else f"{text[:37]}..."


MAX_LOG = 700.0  # exp of more overflows


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Raises ConfigError naming what is wrong and what is allowed.

    An entry (session_entries) is a logarithm on the scale "ratio" and the value itself on "difference"; more is worse.
    Cases of one `group` share what a night does to all alike, and one verdict on that. q is the share of false alarms
    among the alarms, which pairs and two samples are held to.
    """

    margin: float = 0.01
    q: float = 0.05
    better: Better = "lower"
    scale: Scale = "ratio"
    group: str = ""

    def __post_init__(self) -> None:
        if not (isinstance(self.margin, (int, float)) and 0 <= self.margin < 1):
            raise ConfigError(f"margin is {self.margin!r}; want a fraction from 0 to below 1, such as 0.01")
        if not isinstance(self.q, (int, float)):
            raise ConfigError(f"q is {self.q!r}; want a fraction between 0 and 1, such as 0.05")
        fraction("q", self.q)
        for name, allowed in (("better", ("lower", "higher")), ("scale", ("ratio", "difference"))):
            if getattr(self, name) not in allowed:
                raise ConfigError(f"{name} is {getattr(self, name)!r}; want {' or '.join(allowed)}")

    def entry(self, worse_by: float) -> float:
        """Returns a fraction for the worse as a difference of entries: log(1 + f), -log(1 - f) where higher is better,
        or f."""
        if self.scale == "difference":
            return worse_by
        return -math.log1p(-worse_by) if self.better == "higher" else math.log1p(worse_by)

    def fraction(self, entry: float) -> float:
        """The other way round: by what fraction a difference of entries is worse, below 0 for better."""
        if self.scale == "difference":
            return entry
        return -math.expm1(min(-entry, MAX_LOG)) if self.better == "higher" else math.expm1(min(entry, MAX_LOG))

    def ratio(self, entry: float) -> float:
        """current / baseline of a difference of entries; current - baseline on the scale "difference"."""
        signed = -entry if self.better == "higher" else entry
        return math.exp(min(signed, MAX_LOG)) if self.scale == "ratio" else signed

    def ratios(self, low: float, high: float) -> tuple[float, float]:
        """Returns the interval of ratios of an interval of entries, ascending."""
        ends = sorted((self.ratio(low), self.ratio(high)))
        return ends[0], ends[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseEntries:
    """Entries of one case, [R] a session, or what is wrong with a session: tonight's (None where it was not measured),
    the accepted ones by name, those that came after them, oldest first, and those of changes that are gone."""

    rule: Rule
    current: FloatArray | str | None
    accepted: Mapping[str, FloatArray | str]
    later: Mapping[str, FloatArray | str]
    gone: Mapping[str, FloatArray | str]


def read_cases(
    rules: Mapping[str, Rule],
    baseline: Mapping[str, Sessions],
    pending: Mapping[str, Sessions],
    gone: Mapping[str, Sessions],
    current: Mapping[str, Session],
) -> dict[str, CaseEntries]:
    """Returns the entries of every case that has a rule. A case that the others do not know has none there."""
    parts = [{case: _named(part.get(case, ())) for case in rules} for part in (baseline, pending, gone)]
    by_turn: dict[tuple[Scale, Better], list[str]] = {}
    for case, rule in rules.items():
        by_turn.setdefault((rule.scale, rule.better), []).append(case)
    cases: dict[str, CaseEntries] = {}
    for (scale, better), names in by_turn.items():
        everything = [current[case] for case in names if case in current]
        everything += [session for case in names for part in parts for session in part[case].values()]
        entries = iter(many_entries(everything, scale, better))
        tonight = {case: next(entries) for case in names if case in current}
        for case in names:
            accepted, later, left = ({name: next(entries) for name in part[case]} for part in parts)
            cases[case] = CaseEntries(
                rule=rules[case], current=tonight.get(case), accepted=accepted, later=later, gone=left
            )
    return {case: cases[case] for case in rules}


def rectangle(rows: Iterable[FloatArray]) -> FloatArray:
    """Rows of unequal length as one array, filled up with NaN."""
    rows = list(rows)
    filled = np.full((len(rows), max(map(len, rows), default=0)), np.nan)
    for index, values in enumerate(rows):
        filled[index, : len(values)] = values
    return filled


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
