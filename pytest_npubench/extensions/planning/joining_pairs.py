"""Pairs of requests: one comes to an idle device, the second joins it. Measures their steps' time above the profile's.

A LENS point is served without a pause, its prompts one behind the other, so two things are in no profile. A device that
had nothing to do is slow at first: caches are cold, threads sleep, clocks are low, the more so the longer it had
nothing. And a prompt behind many decode steps finds caches and threads as those left them, and leaves its own to the
steps behind it. Both add about the same in every bucket; pairs are served in the smallest.

The pauses before pairs are those of Poisson arrivals at the load's rate, which are distributed alike whatever is served
between them: visit after visit takes the next of NUM_PAIRS even quantiles.

Worked example: TTFT 15 ms from idle, then 4, 2, 2 ms between tokens; the second prompt comes then, and the next token
of the first takes 14 ms, those behind it 3 and 2 ms. Of a bucket of 10 and 2 ms the waking steps take 5, 2, 0, 0 ms
longer, and those of joining 14 - 10 - 2 = 2, 1, 0 ms.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from statistics import fmean
from typing import TYPE_CHECKING, TypeAlias

from pytest_npubench.campaign.visits import DIGITS, Columns, Visit, by_visit
from pytest_npubench.errors import MeasurementError
from pytest_npubench.suites.buckets.points import NUM_PAIR_STEPS, NUM_PAIRS

if TYPE_CHECKING:
    from pytest_npubench.predictors.profile import BucketTiming

JOINS_AT = 0.4  # of what the first takes alone: neither of its waking steps nor of its last ones


@dataclass(frozen=True, slots=True, kw_only=True)
class PairVisit(Visit):
    """Of both requests the arrival and when each token came, on the clock of the visit."""

    first_s: tuple[float, ...]
    second_s: tuple[float, ...]

    def columns(self) -> Columns:
        return {"pairs": (1.0,), "first_s": _rounded(self.first_s), "second_s": _rounded(self.second_s)}

    @classmethod
    def of_columns(cls, columns: Columns) -> tuple[PairVisit, ...]:
        """Raises MeasurementError where visits have not as many tokens each."""
        number = len(columns.get("pairs", ()))
        first, second = (by_visit(columns.get(name, ()), number, "times") for name in ("first_s", "second_s"))
        return tuple(cls(first_s=one, second_s=other) for one, other in zip(first, second, strict=True))


def _rounded(times_s: Sequence[float]) -> list[float]:
    return [round(time_s, DIGITS) for time_s in times_s]


def pause_s(visit: int, rate_per_s: float) -> float:
    """Before a pair: an even quantile of the pauses of Poisson arrivals."""
    return -math.log1p(-(visit % NUM_PAIRS + 0.5) / NUM_PAIRS) / rate_per_s


Profiled: TypeAlias = "tuple[PairVisit, BucketTiming]"
"""A pair, and its bucket as the round of the pair profiled it."""


def waking_s(pairs: Iterable[Profiled]) -> tuple[float, ...]:
    """Seconds that the steps of those who found nobody there took above the profile's, until the second came; the first
    from arrival on. Means over the pairs. Raises MeasurementError where none had a token by then."""
    above_s = []
    for pair, timing in pairs:
        ttft_s, tbt_s = _times_s(timing)
        until_s = [time_s for time_s in pair.first_s[: NUM_PAIR_STEPS + 1] if time_s <= pair.second_s[0]]
        above_s.append(_above(until_s, ttft_s, tbt_s))
    if not any(above_s):
        raise MeasurementError("no pair in which the first request had a token before the second came")
    return _means(above_s)


def joining_s(pairs: Iterable[Profiled]) -> tuple[float, ...]:
    """Seconds that steps of both took above the profile's, from the one that prefills the second request on. Means over
    the pairs in which it joined before the first had ended; none where it never did, as of a batch size of 1."""
    above_s = []
    for pair, timing in pairs:
        if pair.second_s[1] in pair.first_s:
            ttft_s, tbt_s = _times_s(timing)
            before = pair.first_s.index(pair.second_s[1]) - 1
            above_s.append(_above((pair.first_s[before], *pair.second_s[1:]), ttft_s + tbt_s, tbt_s))
    return _means(above_s)


def _above(times_s: Sequence[float], first_s: float, others_s: float) -> list[float]:
    """What the steps between these times took longer."""
    steps_s = [later - earlier for earlier, later in pairwise(times_s)]
    return [step_s - (others_s if place else first_s) for place, step_s in enumerate(steps_s)]


def _means(rows: Iterable[Sequence[float]]) -> tuple[float, ...]:
    """By place, over those that have it."""
    return tuple(fmean(value for value in place if value is not None) for place in zip_longest(*rows))


def _times_s(timing: BucketTiming) -> tuple[float, float]:
    """TTFT and TBT."""
    assert timing.ttft_s is not None
    assert timing.tbt_s is not None
    return timing.ttft_s, timing.tbt_s
