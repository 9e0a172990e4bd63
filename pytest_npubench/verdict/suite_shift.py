"""What a night does to all cases alike, apart from what happened to one of them.

Entry of case c in session k = level of the case + shift of the night + residual. The shift is the median over the
cases of (entry - the case's mean); tonight's leaves out the cases that are far from the others, or a change that hits
many of them would be taken off in part. Without it a case is compared with nights of its own kind only, which lifts the
power to see a 5 % slow-down (docs/statistics.md); but taking it off would hide a regression that hits every case, so it
is taken off only while it is no larger than such nights usually are, and it has a verdict of its own.

Worked number: shifts of the accepted nights (0.2, -0.1, -0.1) % and tonight +6 %: standard deviation 0.17 %, and
(6 - 1) / (0.17 sqrt(4 / 3)) = 25 standard errors beyond a margin of 1 %: the suite moved.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pytest_npubench.stats.checks import FloatArray
from pytest_npubench.stats.margin_test import interval, one_sided_p

MIN_CASES = 8  # the median of fewer says more about its cases than about the night
MIN_SESSIONS = 3
MOVED_LEVEL = 0.005
FAR, NUM_ROUNDS = 3.0, 4
"""A case this many of its spreads from the others is not like them; whom that leaves out is asked so often."""
MEDIAN_EFFICIENCY = math.pi / 2  # variance of the median of normal values over that of their mean


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteShift:
    """The shift of each accepted night, [K], and of tonight, relative to the mean of the accepted ones.

    `slower_p` and `faster_p` test it against the margin; `interval` is its 95 % interval.
    """

    nights: FloatArray
    tonight: float
    slower_p: float
    faster_p: float
    interval: tuple[float, float]
    num_cases: int

    @property
    def moved(self) -> bool:
        """Whether tonight is no night like the others."""
        return min(self.slower_p, self.faster_p) < MOVED_LEVEL


def suite_shift(baseline: FloatArray, current: FloatArray, margin: float) -> SuiteShift | None:
    """Estimates the shift from entries [C, K] with 2 or more a row and tonight's first processes [C], NaN for none;
    None where cases or sessions are too few to tell. A night with too few cases is left as it is."""
    enough = np.isfinite(baseline).sum(axis=0) >= MIN_CASES
    num_cases = int(np.isfinite(current).sum())
    if enough.sum() < MIN_SESSIONS or num_cases < MIN_CASES:
        return None
    level = np.nanmean(baseline, axis=1, keepdims=True)
    nights = np.zeros(len(enough))
    nights[enough] = np.nanmedian((baseline - level)[:, enough], axis=0)
    centre, num_nights = float(nights[enough].mean()), int(enough.sum())
    nights = np.where(enough, nights - centre, 0.0)
    spread = np.nanstd(baseline - level - nights, axis=1, ddof=1)
    typical = float(np.median(spread)) ** 2
    tonight = _of_those_alike(current - level[:, 0] - centre, np.maximum(spread, math.sqrt(typical)))
    # a median's own error is there even where no two nights differ
    variance = max(float(nights[enough].var(ddof=1)), MEDIAN_EFFICIENCY * typical / num_cases)
    error = math.sqrt(variance * (1 + 1 / num_nights))
    return _tested(nights, tonight, error, num_nights - 1, margin, num_cases)


def _of_those_alike(apart: FloatArray, spread: FloatArray) -> float:
    """Returns the median of what cases are apart from their usual, [C], NaN for none, without those that are far from
    it."""
    shift = float(np.nanmedian(apart))
    num_cases = int(np.isfinite(apart).sum())
    for _ in range(NUM_ROUNDS):
        alike = np.abs(apart - shift) <= FAR * spread
        if alike.sum() < max(MIN_CASES, num_cases / 2):
            break
        shift = float(np.median(apart[alike]))
    return shift


def common_shift(differences: FloatArray, margin: float) -> SuiteShift | None:
    """What B does to all cases alike, from differences B - A, [C, P pairs]; None where cases or pairs are too few."""
    enough = np.isfinite(differences).sum(axis=0) >= MIN_CASES
    if enough.sum() < MIN_SESSIONS:
        return None
    medians = np.nanmedian(differences[:, enough], axis=0)
    mean, num_pairs = float(medians.mean()), len(medians)
    error = float(medians.std(ddof=1)) / math.sqrt(num_pairs)
    pairs = np.zeros(len(enough))
    pairs[enough] = medians - mean
    return _tested(pairs, mean, error, num_pairs - 1, margin, len(differences))


def _tested(
    nights: FloatArray, tonight: float, error: float, freedom: int, margin: float, num_cases: int
) -> SuiteShift:
    low, high = interval(tonight, error, freedom)
    return SuiteShift(
        nights=nights,
        tonight=tonight,
        slower_p=float(one_sided_p(tonight, margin, error, freedom)),
        faster_p=float(one_sided_p(-tonight, margin, error, freedom)),
        interval=(float(low), float(high)),
        num_cases=num_cases,
    )
