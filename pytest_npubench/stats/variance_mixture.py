"""Moderated variances when a suite holds two kinds of cases: most of them steady, some whose clock has two speeds.

The one scaled inverse chi-square of `moderation` must then be very wide, so it learns little and the steady cases lose
their power. Here the true variances may have any distribution: weights w_j on a grid of variances v_j, the most likely
ones given the observed s^2 with d degrees of freedom (nonparametric maximum likelihood, Kiefer & Wolfowitz 1956, used
for testing many means by Ignatiadis & Sen 2023, arXiv 2303.02887). Expectation maximisation repeats

    p_ij = w_j L_ij / sum_j w_j L_ij,    w_j = mean_i p_ij,    L_ij = v_j^(-d_i/2) exp(-d_i s_i^2 / (2 v_j))

and p_ij is then what case i knows of its variance. Its mean E and squared coefficient of variation c are those of a
scaled inverse chi-square with d' = 4 + 2/c degrees of freedom and variance E (d' - 2) / d': the t test stays a t test.

Worked number: 1 or 9 with probability 1/2 each: E = 5, c = 16/25, d' = 7.125, variance 5 * 5.125 / 7.125 = 3.60.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pytest_npubench.stats.checks import FloatArray
from pytest_npubench.stats.moderation import MIN_VARIANCES, checked_variances, floored

GRID_POINTS = 60
NUM_STEPS = 300  # the weights settle long before; the likelihood never falls


@dataclass(frozen=True, slots=True, kw_only=True)
class VarianceMixture:
    """Weights, summing to 1, on a grid of variances, both of shape (n,), and the degrees of freedom behind them."""

    variances: FloatArray
    weights: FloatArray
    learnt_from: float


def fit_mixture(variances: npt.ArrayLike, degrees_of_freedom: npt.ArrayLike) -> VarianceMixture | None:
    """The most likely distribution of the true variances; arguments, None and errors as `moderation.fit_prior`."""
    variance, freedom = checked_variances(variances, degrees_of_freedom)
    variance, freedom = variance[freedom > 0], freedom[freedom > 0]
    if variance.size < MIN_VARIANCES or not variance.any():
        return None
    variance = floored(variance)
    grid = np.geomspace(variance.min(), variance.max(), GRID_POINTS)
    likelihood = np.exp(_log_likelihood(variance, freedom, grid))
    weights = np.full(GRID_POINTS, 1 / GRID_POINTS)
    for _ in range(NUM_STEPS):
        joint = likelihood * weights
        weights = (joint / joint.sum(axis=1, keepdims=True)).mean(axis=0)
    return VarianceMixture(variances=grid, weights=weights, learnt_from=float(freedom.sum()))


def moderated_by_mixture(
    variances: npt.ArrayLike, degrees_of_freedom: npt.ArrayLike, mixture: VarianceMixture | None
) -> tuple[FloatArray, FloatArray]:
    """Posterior variances and degrees of freedom, both of shape (m,), in place of `moderation.moderated`.

    The degrees are capped as there; a case with 0 degrees takes the whole mixture; without one nothing changes.
    """
    variance, freedom = checked_variances(variances, degrees_of_freedom)
    if mixture is None:
        return variance, freedom
    posterior = _posterior(np.where(freedom > 0, variance, 0.0), freedom, mixture)
    scale = mixture.variances[-1]  # squares of tiny variances would underflow
    mean = posterior @ (mixture.variances / scale)
    spread = (posterior * (mixture.variances / scale - mean[:, None]) ** 2).sum(axis=1) / mean**2
    degrees = 4 + 2 / np.maximum(spread, np.finfo(np.float64).tiny)
    matched = scale * mean * (1 - 2 / degrees)
    return matched, np.minimum(degrees, np.maximum(mixture.learnt_from, freedom))


def _log_likelihood(variance: FloatArray, freedom: FloatArray, grid: FloatArray) -> FloatArray:
    """log L_ij of shape (m, n), the largest of each row moved to 0."""
    logs = -0.5 * freedom[:, None] * (np.log(grid) + variance[:, None] / grid)
    return np.asarray(logs - logs.max(axis=1, keepdims=True))


def _posterior(variance: FloatArray, freedom: FloatArray, mixture: VarianceMixture) -> FloatArray:
    """p_ij of shape (m, n), by logarithms: a case that was not in the fit may lie where the weights are next to 0."""
    weights = np.maximum(mixture.weights, np.finfo(np.float64).tiny)
    logs = _log_likelihood(variance, freedom, mixture.variances) + np.log(weights)
    joint = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(joint / joint.sum(axis=1, keepdims=True))
