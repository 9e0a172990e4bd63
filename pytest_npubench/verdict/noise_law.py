"""What the nights of a suite say of its noise: how far cases stray, how much cases differ in that, how heavy tails are.

An entry of a case is level + scale * T, T of Student's t with `freedom` degrees. The scales of cases are log-normal
(with 1 % anywhere on the grid), and that law is learnt from all cases at once by expectation and maximisation on their
marginal likelihoods, the level of each integrated over. The freedom is the likeliest of 3, 4, 5 and 7: a few thousand
nights cannot show the tail at one night in 12,000, where alarms are, so no tail is taken for lighter than 7 degrees.

Worked number: nights of 40 cases that differ by 1 %, normal: scales about 0.9 %, 7 degrees (benchmarks/gate.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pytest_npubench.stats.checks import FloatArray
from pytest_npubench.stats.student_tail import log_density

NUM_SCALES, NUM_LEVELS = 9, 15
FREEDOMS = (3.0, 4.0, 5.0, 7.0)
MOST_CASES = 60  # that the law is fitted to
NUM_STEPS = 20
ANYWHERE = 0.01
SMALLEST_SCALE = 1e-6  # of entries that never differ
LEAST_SPREAD = 0.2  # of log scales over cases
USUAL_SPREAD, USUAL_CASES = 0.5, 3.0  # what few cases are taken to differ by, as if so many had shown it
FEW_NIGHTS = 5
LARGEST = 1e3  # a difference of entries beyond it is none the more unlikely
MEDIAN_DEVIATION = 1.4826  # a normal deviation over the median absolute one


@dataclass(frozen=True, slots=True, kw_only=True)
class Nights:
    """Entries [C, K] of C cases, more is worse, NaN for none, and the variance of each relative to that of one process:
    a mean of several processes strays less."""

    entries: FloatArray
    variance: FloatArray

    def of(self, rows: NDArray[np.int_] | list[int]) -> Nights:
        return Nights(entries=self.entries[rows], variance=self.variance[rows])

    def with_others(self, others: Nights) -> Nights:
        """And further nights of the same cases."""
        pairs = ((self.entries, others.entries), (self.variance, others.variance))
        entries, variance = (np.concatenate(pair, axis=1) for pair in pairs)
        return Nights(entries=entries, variance=variance)

    def turned(self, sign: int) -> Nights:
        """With the sign -1 more is better."""
        return replace(self, entries=sign * self.entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseLaw:
    """scales [S] with their log weights over cases; `typical` is the scale of the middle case."""

    scales: FloatArray
    log_weights: FloatArray
    freedom: float
    typical: float

    def heavier(self, times: float) -> NoiseLaw:
        """Returns the law with tails that fall so many times as slowly, in half degrees."""
        return replace(self, freedom=float(np.clip(round(2 * self.freedom / times) / 2, 2.5, 40.0)))


def fit_law(nights: Nights) -> NoiseLaw:
    """Fits the law to cases with 2 entries or more."""
    middle, spread = middle_and_spread(nights.entries)
    low, high = np.log(np.quantile(spread, (0.1, 0.9)))
    doubt = 1 / (2 * max(float((counts(nights.entries) - 1).sum()), 1.0))  # the variance of the log of a deviation
    scales = np.exp(np.linspace(low - 0.6 - 2 * np.sqrt(doubt), high + 0.7 + 2 * np.sqrt(doubt), NUM_SCALES))
    typical = float(np.median(spread))
    # evenly over quiet and restless cases, whatever their order
    rows = np.argsort(spread, kind="stable")[np.unique(np.linspace(0, len(spread) - 1, MOST_CASES).astype(int))]
    law = NoiseLaw(scales=scales, log_weights=np.zeros(NUM_SCALES), freedom=FREEDOMS[-1], typical=typical)
    levels = level_grid(middle[rows], middle[rows], spread[rows], counts(nights.entries)[rows], typical)
    fits = [_fitted(replace(law, freedom=freedom), nights.of(rows), levels, doubt) for freedom in FREEDOMS]
    return max(fits, key=lambda fit: fit[0])[1]


def _fitted(law: NoiseLaw, nights: Nights, levels: FloatArray, doubt: float) -> tuple[float, NoiseLaw]:
    """Returns the log likelihood of all cases, and the law with its weights; `doubt` is how well few nights tell its
    centre."""
    by_scale = log_sum(log_likelihood(law, nights, levels).sum(axis=1), axis=2)
    by_scale += np.log(levels[:, 1] - levels[:, 0])[:, None]
    positions, num_cases = np.log(law.scales), len(levels)
    weights = np.full(NUM_SCALES, 1 / NUM_SCALES)
    for _ in range(NUM_STEPS):
        shares = np.exp(by_scale - by_scale.max(axis=1, keepdims=True)) * weights
        shares /= shares.sum(axis=1, keepdims=True)
        share = (shares.sum(axis=0) + 2 * weights) / (num_cases + 2)
        centre = share @ positions
        squares = num_cases * float(share @ (positions - centre) ** 2) + USUAL_CASES * USUAL_SPREAD**2
        variance = squares / (num_cases + USUAL_CASES)
        spread = max(np.sqrt(variance + variance / num_cases + doubt), LEAST_SPREAD)
        bell = np.exp(-0.5 * ((positions - centre) / spread) ** 2)
        weights = (1 - ANYWHERE) * bell / bell.sum() + ANYWHERE / NUM_SCALES
    likelihood = float(log_sum(by_scale + np.log(weights), axis=1).sum())
    return likelihood, replace(law, log_weights=np.log(weights))


def log_likelihood(law: NoiseLaw, nights: Nights, levels: FloatArray, sizes: FloatArray | None = None) -> FloatArray:
    """Returns the log-likelihood of each entry under each scale and level, [C, K, S, Z], 0 where there is none; with
    `sizes` [D] that of the entry had its case changed by so much, [C, K, S, Z, D]. It is in single precision, which is
    twice as fast."""
    apart = np.clip(nights.entries[:, :, None] - levels[:, None, :], -LARGEST, LARGEST)[:, :, None, :]
    inverse = 1 / (law.scales * np.sqrt(nights.variance)[:, :, None])[..., None]
    if sizes is not None:
        apart, inverse = apart[..., None] - sizes, inverse[..., None]
    densities = log_density(np.square((apart * inverse).astype(np.float32)), law.freedom)
    densities += np.log(inverse).astype(np.float32)
    return np.asarray(np.nan_to_num(densities, copy=False, nan=0.0))


def middle_and_spread(entries: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Returns the median of each case and its deviation from the median absolute one, from few nights no less than the
    standard deviation; [C] each, none far below the suite's."""
    middle, number = np.nanmedian(entries, axis=1), counts(entries)
    spread = MEDIAN_DEVIATION * np.nanmedian(np.abs(entries - middle[:, None]), axis=1)
    spread *= np.sqrt(number / np.maximum(number - 1, 1))
    few = number <= FEW_NIGHTS
    spread[few] = np.maximum(spread[few], np.nanstd(entries[few], axis=1, ddof=1))
    return middle, np.maximum(spread, 0.2 * np.median(spread) + SMALLEST_SCALE)


def level_grid(
    lowest: FloatArray, highest: FloatArray, spread: FloatArray, number: FloatArray, typical: float
) -> FloatArray:
    """Levels [C, Z] evenly from below the lower to above the higher of two medians of so many nights."""
    room = 3.5 * np.maximum(spread, np.sqrt(spread * typical)) / np.sqrt(np.maximum(number, 2))
    return np.asarray(np.linspace(lowest - room, highest + room, NUM_LEVELS, axis=1), dtype=np.float64)


def counts(entries: FloatArray) -> FloatArray:
    return np.asarray(np.isfinite(entries).sum(axis=1), dtype=np.float64)


def log_sum(logs: FloatArray, axis: int) -> FloatArray:
    """log of the sum of exp, along an axis."""
    most = logs.max(axis=axis, keepdims=True)
    return np.asarray(np.squeeze(most, axis) + np.log(np.exp(logs - most).sum(axis=axis)))
