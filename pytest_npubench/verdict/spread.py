"""The median and the tail of a case's samples, judged beside the better quartile that is its entry.

A better quartile is blind for what fewer than three of four calls suffer: two of three that take three times as long
leave it where it was. So two more figures of each process are held against those of accepted sessions:

    median       alarms beyond 25 %
    tail         alarms beyond 50 %: the 90th percentile of times, the 10th of rates

Whatever else a machine does makes both worse, so neither alarms unless it is also beyond what accepted sessions differ
by: 4 s sqrt(1 + 1/n), s being the standard deviation of the case's n sessions, or that of the family's middle case
where it is larger. An alarm makes the case a suspect, which fresh processes have to confirm like any other.

Worked number: five sessions whose log medians differ by s = 2 %; 4 * 2 % * sqrt(6 / 5) = 8.8 % is less than
log 1.25 = 22.3 %, so that two calls of three at x3, log 3 = 110 %, alarm, and a median 20 % worse does not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pytest_npubench.stats.checks import FloatArray
from pytest_npubench.verdict.observations import Better, Session, many_entries
from pytest_npubench.verdict.wording import change_text, percent

MIN_SESSIONS = 3
NUM_DEVIATIONS = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadFigure:
    """A quantile of a process's samples, `level` for times, and the change of it that nobody minds. A process of fewer
    than min_samples does not tell it."""

    name: str
    level: float
    margin: float
    min_samples: int


FIGURES = (
    SpreadFigure(name="median", level=0.5, margin=0.25, min_samples=3),
    SpreadFigure(name="tail (90th percentile)", level=0.9, margin=0.50, min_samples=8),
)


def spread_alarms(
    accepted: Mapping[str, Sequence[Session]], current: Mapping[str, Session], better: Better
) -> dict[str, str]:
    """Names by case, in words, the first figure that is far worse than that of the accepted sessions; cases of one
    family, oldest sessions first. A case whose samples do not tell the figure, or with fewer than 3 sessions, has
    none."""
    alarms: dict[str, str] = {}
    for figure in FIGURES:
        for case, text in _alarms(figure, accepted, current, better).items():
            alarms.setdefault(case, text)
    return alarms


def _alarms(
    figure: SpreadFigure, accepted: Mapping[str, Sequence[Session]], current: Mapping[str, Session], better: Better
) -> dict[str, str]:
    showing = {case: [session for session in accepted[case] if _tells(session, figure)] for case in current}
    cases = [case for case in current if len(showing[case]) >= MIN_SESSIONS and _tells(current[case], figure)]
    level = figure.level if better == "lower" else 1 - figure.level
    entries = iter(
        many_entries([session for case in cases for session in (current[case], *showing[case])], "ratio", better, level)
    )
    by_case = {case: [next(entries) for _ in range(1 + len(showing[case]))] for case in cases}
    usable = {
        case: np.array([entry.mean() for entry in rows if not isinstance(entry, str)])
        for case, rows in by_case.items()
        if not any(isinstance(entry, str) for entry in rows)
    }
    middle = float(np.median([_deviation(row[1:]) for row in usable.values()])) if usable else 0.0
    deviations = {case: max(_deviation(row[1:]), middle) for case, row in usable.items()}
    alarms = {case: _alarm(figure, row, deviations[case], better) for case, row in usable.items()}
    return {case: text for case, text in alarms.items() if text}


def _alarm(figure: SpreadFigure, row: FloatArray, deviation: float, better: Better) -> str:
    """Words the alarm of tonight's entry, which stands first, against those of the sessions; empty for none."""
    num_sessions, worse_by = len(row) - 1, float(row[0] - row[1:].mean())
    usual = max(math.log1p(figure.margin), NUM_DEVIATIONS * deviation * math.sqrt(1 + 1 / num_sessions))
    if worse_by <= usual:
        return ""
    change, room = ((math.expm1 if better == "lower" else _less_by)(one) for one in (worse_by, usual))
    than = f"than that of {num_sessions} accepted sessions, where up to {percent(room)} does not matter"
    return f"its {figure.name} is {change_text(change)} {than}"


def _less_by(entry: float) -> float:
    return -math.expm1(-entry)


def _tells(session: Session, figure: SpreadFigure) -> bool:
    return all(len(samples) >= figure.min_samples for samples in session)


def _deviation(entries: FloatArray) -> float:
    return float(entries.std(ddof=1))
