"""How strong the evidence is that a case became worse: from the table to one p-value a case.

1. The shift of the night is taken off (suite_shift), unless the whole suite moved or is too small to tell.
2. Each case is compared with its slower mode (modes); its variance between sessions is moderated over the suite
   (stats.moderation).
3. The predictive margin test (stats.margin_test): p = P(T >= (difference - margin) / standard error). Where tonight's
   processes disagree by more than the case's sessions do, their own scatter is tonight's error (an F-test at 5 %).
4. A case that never jumped may do so tonight: a p-value is never below the chance of a jump that explains the
   difference (jumps). A case with two modes is left out: it is held against its jumps already.

Worked number: mean 0 of 20 sessions, s = 1 % moderated to 30 degrees of freedom, tonight 5.1 %, margin 1 %: standard
error 1 % sqrt(21 / 20) = 1.025 %, t = 4, p = 1.9e-4; were it told that jumps of 6 % come once in 2000 nights of a case,
p would be at least 0.81 / 2000 = 4.0e-4.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pytest_npubench.stats.checks import FloatArray
from pytest_npubench.stats.margin_test import one_sided_p
from pytest_npubench.stats.moderation import VariancePrior, fit_prior, moderated
from pytest_npubench.verdict.jumps import NO_JUMPS, Jumps, rare_jumps
from pytest_npubench.verdict.modes import slower_mode, within_modes
from pytest_npubench.verdict.observations import ObservationTable
from pytest_npubench.verdict.suite_shift import SuiteShift, suite_shift

DISAGREE_LEVEL = 0.05
MANY = 1e6  # degrees of freedom: as good as infinitely many, which fdtri does not take
SHARE_PRIOR_FREEDOM = 4.0  # as if 4 repeats had shown that further processes tell nothing new


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Against the slower mode, [C] each: difference, standard deviation of a session, standard error, degrees of
    freedom, p-value. num_sessions counts those of the mode; process_share is what of the variance processes make;
    excess is the variance of tonight's processes where they disagree, else 0. jumps are those that cases of one mode
    were held against."""

    difference: FloatArray
    deviation: FloatArray
    error: FloatArray
    freedom: FloatArray
    num_sessions: FloatArray
    num_modes: FloatArray
    process_share: FloatArray
    excess: FloatArray
    p: FloatArray
    jumps: Jumps = NO_JUMPS


def night_shift(table: ObservationTable, margin: float) -> SuiteShift | None:
    """What the night did to all cases; None where they are too few to tell."""
    return suite_shift(table.baseline, table.current[:, 0], margin)


def without_shift(table: ObservationTable, shift: SuiteShift | None) -> ObservationTable:
    """The table less what every case did alike; as it is where the suite moved, or is too small to tell."""
    if shift is None or shift.moved:
        return table
    return replace(table, baseline=table.baseline - shift.nights, current=table.current - shift.tonight)


def worse(table: ObservationTable, margin: float, *, independent: bool) -> Evidence:
    """Evidence that cases are worse than their baseline by more than `margin`, an entry's difference.

    `independent` says that the shift of the night is off, so that variances of cases do not move together. Every case
    needs 2 sessions or more.
    """
    mode = slower_mode(table.baseline, margin)
    counts = mode.sum(axis=1).astype(np.float64)
    reference = np.where(mode, table.baseline, 0.0).sum(axis=1) / counts
    variance, own_freedom = within_modes(table.baseline, mode)
    steadied, freedom = moderated(variance, own_freedom, _prior(variance, own_freedom, independent))
    share = process_share(table, steadied)
    two_modes = counts < np.isfinite(table.baseline).sum(axis=1)
    excess = np.where(two_modes, 0.0, excess_scatter(table, steadied, freedom))
    error = np.sqrt(steadied / counts + np.maximum(steadied * _night_and_processes(table, share), excess))
    difference = np.nanmean(table.current, axis=1) - reference
    p = one_sided_p(difference, margin, error, freedom)
    jumps = rare_jumps(table.baseline, mode)
    return Evidence(
        difference=difference,
        deviation=np.sqrt(steadied),
        error=error,
        freedom=freedom,
        num_sessions=counts,
        num_modes=np.where(two_modes, 2.0, 1.0),
        process_share=share,
        excess=excess,
        p=np.where(two_modes, p, np.maximum(p, jumps.lowest_p(difference, error, freedom))),
        jumps=jumps,
    )


def process_share(table: ObservationTable, variance: FloatArray) -> FloatArray:
    """The share of a session's variance that its processes make, [C] all alike; the rest stays the same all night.

    From repeats of one session, less each first process, since suspects are repeated because their first was slow. It
    is drawn to 0, where repeats would tell nothing new, as far as repeats are few.
    """
    usable = (table.repeats_freedom > 0) & (variance > 0)
    explained = table.repeats[usable] / (table.num_processes[usable] * variance[usable])
    share = float(explained.sum() / (table.repeats_freedom[usable].sum() + SHARE_PRIOR_FREEDOM))
    return np.full(len(variance), min(share, 1.0))


def excess_scatter(table: ObservationTable, variance: FloatArray, freedom: FloatArray) -> FloatArray:
    """The variance between tonight's processes where it is more than `variance` of a session explains, else 0; [C].

    An F-test at DISAGREE_LEVEL. Processes minutes apart that disagree so were measured on a machine whose speed was
    moving: their mean is no surer than one of them. A case that works more does so in each of them.
    """
    from scipy.special import fdtri  # a quarter of a second that collecting cases need not pay

    freedom_tonight = np.isfinite(table.current).sum(axis=1) - 1
    centred = table.current - np.nanmean(table.current, axis=1, keepdims=True)
    scatter = np.nansum(centred**2, axis=1) / np.maximum(freedom_tonight, 1)
    limit = fdtri(np.maximum(freedom_tonight, 1), np.minimum(freedom, MANY), 1 - DISAGREE_LEVEL)
    return np.asarray(np.where(scatter > limit * variance, scatter, 0.0))


def _night_and_processes(table: ObservationTable, share: FloatArray) -> FloatArray:
    """rho + (1 - rho) / R, with R counted in processes of a baseline session, rho = 1 - share."""
    fewer = table.num_processes / np.isfinite(table.current).sum(axis=1)
    # with fewer processes than the baseline had, all variance might be theirs: the cautious side is the other one
    return np.asarray(np.where(fewer > 1, fewer, 1 - share + share * fewer))


def _prior(variance: FloatArray, freedom: FloatArray, independent: bool) -> VariancePrior | None:
    prior = fit_prior(variance, freedom)
    if prior is None or independent:
        return prior
    # nights that all cases share make the variances agree: averaging them is right, being surer for it is not
    return replace(prior, learnt_from=float(freedom.max()))
