"""How strong the evidence is that a case became worse: from the table to one p-value a case.

1. The shift of the night is taken off (suite_shift), unless the whole suite moved or is too small to tell.
2. Each case is compared with its slower mode (modes); its variance between sessions is moderated over the suite
   (stats.moderation).
3. The predictive margin test (stats.margin_test): p = P(T >= (difference - margin) / standard error).
4. The tail is calibrated by the accepted nights themselves: each is held against the others as tonight is, and a
   p-value cannot be smaller than the share of accepted nights that looked as bad. A suite whose cases jump now and then
   has such nights, and a Student tail knows nothing of them. Beyond the worst accepted night the Student tail goes on
   from there. A case whose two modes are both known well is left out: its jumps have been seen.

Worked number for 4: 300 cases x 20 nights, three of the 6000 at or below p = 1e-7, as tonight's: calibrated
p = 4 / 6001 = 7e-4, which is no alarm among 300 cases.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pytest_npubench.stats.checks import BoolArray, FloatArray
from pytest_npubench.stats.margin_test import one_sided_p
from pytest_npubench.stats.moderation import VariancePrior, fit_prior, moderated
from pytest_npubench.verdict.modes import slower_mode
from pytest_npubench.verdict.observations import Table
from pytest_npubench.verdict.suite_shift import SuiteShift, suite_shift

MIN_TAIL_NIGHTS = 100
SHARE_PRIOR_FREEDOM = 4.0  # as if 4 repeats had shown that further processes tell nothing new


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Against the slower mode, [C] each: difference, standard deviation of a session, standard error, degrees of
    freedom, p-value. num_sessions counts those of the mode; process_share is what of the variance processes make."""

    difference: FloatArray
    deviation: FloatArray
    error: FloatArray
    freedom: FloatArray
    num_sessions: FloatArray
    num_modes: FloatArray
    process_share: FloatArray
    p: FloatArray


def night_shift(table: Table, margin: float) -> SuiteShift | None:
    """What the night did to all cases; None where they are too few to tell."""
    return suite_shift(table.baseline, table.current[:, 0], margin)


def without_shift(table: Table, shift: SuiteShift | None) -> Table:
    """The table less what every case did alike; as it is where the suite moved, or is too small to tell."""
    if shift is None or shift.moved:
        return table
    return replace(table, baseline=table.baseline - shift.nights, current=table.current - shift.tonight)


def worse(table: Table, margin: float, *, independent: bool) -> Evidence:
    """Evidence that cases are worse than their baseline by more than `margin`, an entry's difference.

    `independent` says that the shift of the night is off, so that variances of cases do not move together. Every case
    needs 2 sessions or more.
    """
    mode = slower_mode(table.baseline, margin)
    counts = mode.sum(axis=1).astype(np.float64)
    reference = np.where(mode, table.baseline, 0.0).sum(axis=1) / counts
    variance, own_freedom = _within_modes(table.baseline, mode)
    prior = _prior(variance, own_freedom, independent)
    steadied, freedom = moderated(variance, own_freedom, prior)
    share = process_share(table, steadied)
    error = np.sqrt(steadied * (1 / counts + _night_and_processes(table, share)))
    difference = np.nanmean(table.current, axis=1) - reference
    p = one_sided_p(difference, margin, error, freedom)
    num_modes = 1.0 + (counts < np.isfinite(table.baseline).sum(axis=1))
    known = (num_modes == 2) & (counts > 1)
    tail = _tail(table.baseline[~known], prior, margin)
    return Evidence(
        difference=difference,
        deviation=np.sqrt(steadied),
        error=error,
        freedom=freedom,
        num_sessions=counts,
        num_modes=num_modes,
        process_share=share,
        p=np.where(known, p, calibrated(p, tail)),
    )


def process_share(table: Table, variance: FloatArray) -> FloatArray:
    """The share of a session's variance that its processes make, [C] all alike; the rest stays the same all night.

    From repeats of one session, less each first process, since suspects are repeated because their first was slow. It
    is drawn to 0, where repeats would tell nothing new, as far as repeats are few.
    """
    usable = (table.repeats_freedom > 0) & (variance > 0)
    explained = table.repeats[usable] / (table.num_processes[usable] * variance[usable])
    share = float(explained.sum() / (table.repeats_freedom[usable].sum() + SHARE_PRIOR_FREEDOM))
    return np.full(len(variance), min(share, 1.0))


def calibrated(p: FloatArray, tail: FloatArray) -> FloatArray:
    """p-values that are never below the share of the accepted nights, `tail` sorted, that looked as bad."""
    if tail.size < MIN_TAIL_NIGHTS:
        return p
    as_bad = np.searchsorted(tail, p, side="right")
    beyond = np.where(as_bad == 0, np.minimum(1.0, p / max(float(tail[0]), np.finfo(np.float64).tiny)), 1.0)
    return np.asarray(np.maximum(p, (1 + as_bad) / (1 + tail.size) * beyond))


def _night_and_processes(table: Table, share: FloatArray) -> FloatArray:
    """rho + (1 - rho) / R, with R counted in processes of a baseline session, rho = 1 - share."""
    fewer = table.num_processes / np.isfinite(table.current).sum(axis=1)
    # with fewer processes than the baseline had, all variance might be theirs: the cautious side is the other one
    return np.asarray(np.where(fewer > 1, fewer, 1 - share + share * fewer))


def _within_modes(entries: FloatArray, mode: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Variance of a session within its mode, pooled over both, and its degrees of freedom, [C] each."""
    other = np.isfinite(entries) & ~mode
    squares = _squares(entries, mode) + _squares(entries, other)
    freedom = mode.sum(axis=1) - 1.0 + np.maximum(other.sum(axis=1) - 1.0, 0.0)
    return np.where(freedom > 0, squares / np.maximum(freedom, 1.0), np.nan), freedom


def _squares(entries: FloatArray, chosen: BoolArray) -> FloatArray:
    count = np.maximum(chosen.sum(axis=1), 1)
    mean = np.where(chosen, entries, 0.0).sum(axis=1) / count
    return np.asarray(np.where(chosen, (entries - mean[:, None]) ** 2, 0.0).sum(axis=1))


def _prior(variance: FloatArray, freedom: FloatArray, independent: bool) -> VariancePrior | None:
    prior = fit_prior(variance, freedom)
    if prior is None or independent:
        return prior
    # nights that all cases share make the variances agree: averaging them is right, being surer for it is not
    return replace(prior, learnt_from=float(freedom.max()))


def _tail(entries: FloatArray, prior: VariancePrior | None, margin: float) -> FloatArray:
    """The p-value of each accepted night held against the other nights of its case, sorted."""
    present = np.isfinite(entries)
    counts = np.broadcast_to(present.sum(axis=1, keepdims=True), entries.shape)
    usable = present & (counts >= 4)  # three others, so that they have a variance worth the name
    values = np.where(present, entries, 0.0)
    others = counts - 1.0
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = (values.sum(axis=1, keepdims=True) - values) / others
        centred = values - np.where(counts > 0, values.sum(axis=1, keepdims=True) / np.maximum(counts, 1), 0.0)
        squares = np.where(present, centred**2, 0.0)
        # sum of squares about the mean of the others, by the one-point downdate of Welford
        about = squares.sum(axis=1, keepdims=True) - squares * counts / others
        variance = np.maximum(about, 0.0) / (others - 1)
    if not usable.any():
        return np.empty(0)
    own, freedom = variance[usable], (others - 1)[usable]
    steadied, degrees = moderated(own, freedom, prior)
    error = np.sqrt(steadied * (1 + 1 / others[usable]))
    return np.sort(one_sided_p((values - mean)[usable], margin, error, degrees))
