"""Variances of many cases, each from a few sessions, steadied by what all cases have in common.

A variance from five sessions is off by a factor of two as often as not; a small one by chance is a false alarm. Smyth
(2004, 10.2202/1544-6115.1027) takes the true variances of the cases as scaled inverse chi-square with scale s0^2 and d0
degrees of freedom, learns both from the suite, and replaces each s^2 by the posterior mean of its precision:

    s~^2 = (d0 s0^2 + d s^2) / (d0 + d),        degrees d0 + d                                (section 3)

The prior comes from moments of e = log s^2 - digamma(d / 2) + log(d / 2) (section 6.2):

    trigamma(d0 / 2) = var(e) - mean(trigamma(d / 2)),    s0^2 = exp(mean(e) + digamma(d0 / 2) - log(d0 / 2))

Worked number: s0^2 = 4 with d0 = 6 and s^2 = 1 with d = 4 give (24 + 4) / 10 = 2.8 with 10 degrees.

The variances must be independent of one another. A night that slows every case alike enters all variances together:
they then agree with one another and are all wrong together, and the prior would look surer than it is. Take out what
cases share before asking.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pytest_npubench.errors import MeasurementError
from pytest_npubench.stats.checks import FloatArray, require

MIN_VARIANCES = 3  # below, the spread of the variances is itself unknown
SMALLEST_SHARE = 1e-5  # of the median: a variance of 0 has no logarithm


@dataclass(frozen=True, slots=True, kw_only=True)
class VariancePrior:
    """What the suite says of a case's variance; infinite degrees mean that all cases share one variance.

    `learnt_from` is the sum of the degrees of freedom behind the prior: no posterior can rest on more.
    """

    variance: float
    degrees_of_freedom: float
    learnt_from: float = math.inf


def fit_prior(variances: npt.ArrayLike, degrees_of_freedom: npt.ArrayLike) -> VariancePrior | None:
    """Returns the prior of variances with their degrees of freedom, both of shape (m,), by Smyth's moments.

    A case with 0 degrees knows nothing of its variance (which may be NaN) and is passed over. None below three usable
    variances, or where all of them are 0. Raises MeasurementError: shapes that differ, a value that cannot be one.
    """
    variance, freedom = checked_variances(variances, degrees_of_freedom)
    variance, freedom = variance[freedom > 0], freedom[freedom > 0]
    if variance.size < MIN_VARIANCES or not variance.any():
        return None
    pooled = float(np.average(variance, weights=freedom))
    location, spread = _log_moments(floored(variance), freedom)
    if spread <= 0:  # no more spread than sampling gives: one variance for all, best known from the pool
        return VariancePrior(variance=pooled, degrees_of_freedom=math.inf, learnt_from=float(freedom.sum()))
    half = inverse_trigamma(spread)
    scale = math.exp(location + _digamma_less_log(np.array(half)).item())
    return VariancePrior(variance=scale, degrees_of_freedom=2 * half, learnt_from=float(freedom.sum()))


def moderated(
    variances: npt.ArrayLike, degrees_of_freedom: npt.ArrayLike, prior: VariancePrior | None
) -> tuple[FloatArray, FloatArray]:
    """Posterior variances and degrees of freedom, both of shape (m,); without a prior they stay as they are.

    The degrees are d0 + d, but no more than the prior was learnt from (and never fewer than d). A case with 0 degrees
    takes the prior as it is. Raises MeasurementError as `fit_prior`.
    """
    variance, freedom = checked_variances(variances, degrees_of_freedom)
    if prior is None:
        return variance, freedom
    estimable = np.where(freedom > 0, variance, 0.0)
    if math.isinf(prior.degrees_of_freedom):
        posterior = np.full_like(estimable, prior.variance)
    else:
        # shares that add to 1: d0 s0^2 may overflow where its share does not
        share = freedom / (prior.degrees_of_freedom + freedom)
        posterior = (1 - share) * prior.variance + share * estimable
    return posterior, np.minimum(prior.degrees_of_freedom + freedom, np.maximum(prior.learnt_from, freedom))


def inverse_trigamma(value: float) -> float:
    """Returns the y > 0 with trigamma(y) = value, for value > 0, by Newton's method on 1 / trigamma (Smyth 2004,
    appendix).

    1 / trigamma is convex and nearly straight, so the steps never overshoot. Worked number: trigamma(1) = pi^2 / 6.
    """
    from scipy import special  # a quarter of a second that collecting cases need not pay

    if value > 1e7:  # trigamma(y) -> 1 / y^2 as y -> 0
        return 1 / math.sqrt(value)
    if value < 1e-6:  # trigamma(y) -> 1 / y as y grows
        return 1 / value
    y = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(special.polygamma(1, y))
        step = trigamma * (1 - trigamma / value) / float(special.polygamma(2, y))
        y += step
        if abs(step) < 1e-10 * y:
            break
    return y


def _log_moments(variance: FloatArray, freedom: FloatArray) -> tuple[float, float]:
    """Mean of e, and the spread of e beyond what sampling alone gives it."""
    from scipy import special

    e = np.log(variance) - _digamma_less_log(freedom / 2)
    sampling = float(np.mean(special.polygamma(1, freedom / 2)))
    return float(e.mean()), float(e.var(ddof=1)) - sampling


def _digamma_less_log(x: FloatArray) -> FloatArray:
    from scipy import special

    return np.asarray(special.digamma(x) - np.log(x), dtype=np.float64)


def floored(variance: FloatArray) -> FloatArray:
    """Variances, not all 0, lifted to a small share of their median (of the positive ones' if it is 0)."""
    middle = float(np.median(variance)) or float(np.median(variance[variance > 0]))
    return np.maximum(variance, SMALLEST_SHARE * middle)


def checked_variances(variances: npt.ArrayLike, degrees_of_freedom: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Returns both as rows of floats. Raises MeasurementError on different shapes and impossible values."""
    variance = np.atleast_1d(np.asarray(variances, dtype=np.float64))
    freedom = np.atleast_1d(np.asarray(degrees_of_freedom, dtype=np.float64))
    if variance.shape != freedom.shape or variance.ndim != 1:
        raise MeasurementError(
            f"variances of shape {variance.shape} with degrees_of_freedom of shape {freedom.shape}; "
            f"want one row of each, equally long"
        )
    require("degrees_of_freedom", freedom, np.isfinite(freedom) & (freedom >= 0), "a finite number >= 0")
    usable = np.isfinite(variance) & (variance >= 0)
    return require("variances", variance, usable | (freedom == 0), "a finite number >= 0"), freedom
