"""The rounds of a serving campaign with one figure a point, for the chart of their drift.

A round of it holds every time point of every request; what can be followed from round to round is the mean TTFT of a
block, the prefill of a prompt and a decode step.

Worked example: "layered(tokens_per_iteration=64)/layered-arxiv@r1.3/request.arrival_s" of (0, 1), output tokens (2, 1)
and token times (0.5, 0.6, 2.0) make the point "layered/layered-arxiv@r1.3 (tokens_per_iteration=64)" of 0.75 s.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import accumulate
from statistics import fmean

from pytest_npubench.reports.record_fields import Record, numbers, table

TOKEN_TIMES = "request.token_times_s"
REPEATED = ("prefill_s", "step_s")
SERVED = re.compile(r"([^(/]+)\((.*?)\)/(.+)")


def served_rounds(rounds: Iterable[Record]) -> tuple[Record, ...]:
    """The same rounds, whose points have seconds only."""
    return tuple({"round": record["round"], "points": _points(table(record, "points"))} for record in rounds)


def _points(columns: Record) -> dict[str, Sequence[float]]:
    found: dict[str, Sequence[float]] = {}
    for column in columns:
        point, _, name = column.rpartition("/")
        if name == TOKEN_TIMES:
            found[_shown(point)] = _mean_ttft_s(columns, point)
        elif name in REPEATED:
            found[point] = numbers(columns, column)
    return found


def _mean_ttft_s(columns: Record, point: str) -> tuple[float, ...]:
    """One value, none where the columns do not fit together; tokens of all requests stand in one row, in order."""
    arrivals_s, counts = (numbers(columns, f"{point}/request.{name}") for name in ("arrival_s", "output_tokens"))
    times_s = numbers(columns, f"{point}/{TOKEN_TIMES}")
    if not counts or min(counts) < 1 or len(counts) != len(arrivals_s) or sum(counts) != len(times_s):
        return ()
    firsts = [0, *accumulate(map(int, counts))]
    mean_s = fmean(times_s[first] - at_s for first, at_s in zip(firsts, arrivals_s, strict=False))
    return (mean_s,) if mean_s > 0 else ()


def _shown(point: str) -> str:
    """The policy first, which gives the line its colour, its settings last."""
    match = SERVED.fullmatch(point)
    if match is None:
        return point
    policy, settings, load = match.groups()
    return f"{policy}/{load} ({settings})" if settings else f"{policy}/{load}"
