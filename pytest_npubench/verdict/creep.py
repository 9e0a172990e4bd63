"""A case that gets a little worse every night is never worse than last week: it is held against an anchor of long ago.

The anchor is the first sessions that were accepted, kept for good. Creep makes the nights of the window differ by its
trend, which is not noise, so the spread is taken about a straight line through each case's nights.

Worked number: +0.5 % a night for 14 nights, nights that differ by 1 %: against the night before 0.5 % is lost in
1.4 %; against five anchor sessions 7 % is 5.5 standard errors of 1 % sqrt(1 + 1/5) = 1.1 % beyond a margin of 1 %.
"""

from __future__ import annotations

import numpy as np

from pytest_npubench.stats.checks import FloatArray
from pytest_npubench.stats.margin_test import one_sided_p
from pytest_npubench.stats.moderation import fit_prior, moderated
from pytest_npubench.verdict.jumps import rare_jumps
from pytest_npubench.verdict.modes import slower_mode
from pytest_npubench.verdict.observations import ObservationTable

MIN_ANCHOR_SESSIONS = 3


def creep_p(
    table: ObservationTable, anchor: FloatArray, margin: float, night_variance: float
) -> tuple[FloatArray, FloatArray]:
    """p-values that cases are worse than their anchor by more than `margin`, and the differences, [C] each.

    anchor: entries [C, A], NaN for none; a case with too few is given p = 1 and a difference of NaN. night_variance is
    that of the shift all cases share, which is off in `table` but not in the anchor.
    """
    counts = np.isfinite(anchor).sum(axis=1)
    told = counts >= MIN_ANCHOR_SESSIONS
    p, difference = np.ones(len(anchor)), np.full(len(anchor), np.nan)
    if told.any():
        variance, freedom = _about_a_line(table.baseline)
        steadied, degrees = moderated(variance, freedom, fit_prior(variance, freedom))
        error = np.sqrt(steadied[told] * (1 + 1 / counts[told]) + night_variance / counts[told])
        difference[told] = np.nanmean(table.current[told], axis=1) - np.nanmean(anchor[told], axis=1)
        jumps = rare_jumps(table.baseline, slower_mode(table.baseline, margin))  # tonight may be the night of one
        by_jump = jumps.lowest_p(difference[told], error, degrees[told])
        p[told] = np.maximum(one_sided_p(difference[told], margin, error, degrees[told]), by_jump)
    return p, difference


def _about_a_line(entries: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Variance of each case's sessions about the least-squares line over their order, and its degrees of freedom."""
    present = np.isfinite(entries)
    counts = present.sum(axis=1)
    order = np.where(present, np.cumsum(present, axis=1), 0.0)
    order = np.where(present, order - (order.sum(axis=1) / counts)[:, None], 0.0)
    centred = np.where(present, entries - np.nanmean(entries, axis=1, keepdims=True), 0.0)
    slope = (order * centred).sum(axis=1) / np.maximum((order**2).sum(axis=1), 1.0)
    squares = np.where(present, (centred - slope[:, None] * order) ** 2, 0.0).sum(axis=1)
    freedom = counts - 2.0
    return squares / np.maximum(freedom, 1.0), np.maximum(freedom, 0.0)
