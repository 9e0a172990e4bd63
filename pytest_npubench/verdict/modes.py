"""Cases that run at one of two speeds, such as a device that comes up at one of two clocks.

Taken as one population, two modes 6 % apart have a standard deviation of 3 %, and a slow-down of 5 % is lost in it.
Taken as two, a case is compared with its slower mode, whichever one it is in tonight: the cautious side, and still much
sharper, since within a mode the case is as steady as any other. Modes are told from the accepted sessions alone, so
tonight's result cannot choose its own yardstick. The price: one accepted night that was slow by accident hides any
smaller regression of its case until it leaves the window.

A case has two modes where the largest gap between its sorted entries is more than 3 typical standard deviations of the
suite, more than 2.5 of its own within the modes, and more than the margin.

Worked number: entries 0, 0.01, 0.06, 0.07 with a typical deviation of 0.01: the gap 0.05 > 0.03 splits them at 0.035;
the slower mode is (0.06, 0.07).
"""

from __future__ import annotations

import numpy as np

from pytest_npubench.stats.checks import BoolArray, FloatArray

GAP_IN_TYPICAL_DEVIATIONS = 3.0
GAP_IN_OWN_DEVIATIONS = 2.5  # a case that is restless all the time has wide gaps and yet one mode
MIN_SESSIONS = 6
MIN_CASES = 8  # what is typical must come from somewhere, and from cases of one mode, so from more than half


def slower_mode(entries: FloatArray, margin: float) -> BoolArray:
    """Which entries, [C, K], are of a case's slower mode: all of them where the case has one mode only."""
    present = np.isfinite(entries)
    known = present.sum(axis=1) >= MIN_SESSIONS
    if known.sum() < MIN_CASES:
        return present
    gap, cut = _largest_gap(entries)
    above = present & (entries > cut[:, None])
    own = np.sqrt(np.nan_to_num(within_modes(entries, above)[0]))
    wide = known & (gap > np.maximum(margin, GAP_IN_OWN_DEVIATIONS * own))
    typical = float(np.median(np.nanstd(entries[known], axis=1, ddof=1)))
    two = wide & (gap > GAP_IN_TYPICAL_DEVIATIONS * typical)
    return np.where(two[:, None], above, present)


def within_modes(entries: FloatArray, slower: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Variance of a session within its mode, pooled over both, NaN for none, and its degrees of freedom, [C] each."""
    faster = np.isfinite(entries) & ~slower
    squares = _squares(entries, slower) + _squares(entries, faster)
    freedom = np.maximum(slower.sum(axis=1) - 1.0, 0.0) + np.maximum(faster.sum(axis=1) - 1.0, 0.0)
    return np.where(freedom > 0, squares / np.maximum(freedom, 1.0), np.nan), freedom


def _squares(entries: FloatArray, chosen: BoolArray) -> FloatArray:
    count = np.maximum(chosen.sum(axis=1), 1)
    mean = np.where(chosen, entries, 0.0).sum(axis=1) / count
    return np.asarray(np.where(chosen, (entries - mean[:, None]) ** 2, 0.0).sum(axis=1))


def _largest_gap(entries: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The widest gap between sorted neighbours, and its middle, [C] each; NaN sorts last and makes no gap."""
    ordered = np.sort(entries, axis=1)
    gaps = np.nan_to_num(np.diff(ordered, axis=1), nan=0.0)
    rows, widest = np.arange(len(entries)), gaps.argmax(axis=1)
    return gaps[rows, widest], ordered[rows, widest] + gaps[rows, widest] / 2
