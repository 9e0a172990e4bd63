"""Cases that run at one of two speeds, such as a device that comes up at one of two clocks.

Taken as one population, two modes 6 % apart have a standard deviation of 3 %, and a slow-down of 5 % is lost in it.
Taken as two, a case is compared with its slower mode, whichever one it is in tonight: the cautious side, and still much
sharper, since within a mode the case is as steady as any other. Modes are told from the accepted sessions alone, so
tonight's result cannot choose its own yardstick.

A case has two modes where the largest gap between its sorted entries is more than 3 typical standard deviations of the
suite, and more than the margin.

Worked number: entries 0, 0.01, 0.06, 0.07 with a typical deviation of 0.01: the gap 0.05 > 0.03 splits them at 0.035;
the slower mode is (0.06, 0.07).
"""

from __future__ import annotations

import numpy as np

from pytest_npubench.stats.checks import BoolArray, FloatArray

GAP_IN_DEVIATIONS = 3.0
MIN_SESSIONS = 6
MIN_CASES = 8  # what is typical must come from somewhere


def slower_mode(entries: FloatArray, margin: float) -> BoolArray:
    """Which entries, [C, K], are of a case's slower mode: all of them where the case has one mode only."""
    present = np.isfinite(entries)
    usable = present.sum(axis=1) >= MIN_SESSIONS
    if usable.sum() < MIN_CASES:
        return present
    gap, cut = _largest_gap(entries)
    deviation = np.nanstd(entries[usable], axis=1, ddof=1)
    typical = float(np.median(deviation))
    for _ in range(2):  # the second time without the cases that have two modes
        two = usable & (gap > max(GAP_IN_DEVIATIONS * typical, margin))
        one_mode = deviation[~two[usable]]
        typical = float(np.median(one_mode)) if one_mode.size else typical
    return np.asarray(present & (~two[:, None] | (entries > cut[:, None])))


def _largest_gap(entries: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The widest gap between sorted neighbours, and its middle, [C] each; NaN sorts last and makes no gap."""
    ordered = np.sort(entries, axis=1)
    gaps = np.nan_to_num(np.diff(ordered, axis=1), nan=0.0)
    rows, widest = np.arange(len(entries)), gaps.argmax(axis=1)
    return gaps[rows, widest], ordered[rows, widest] + gaps[rows, widest] / 2
