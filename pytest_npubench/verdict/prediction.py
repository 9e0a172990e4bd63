"""How likely a night as slow as tonight is, from a case's accepted nights: one night's p-value.

A case's level and scale are unknown, so both are integrated over with the weights that its accepted nights give them
(noise_law):

    p = sum over scales and levels of weight * P(T > (tonight - level) / scale)

Five nights or twenty, a quiet case or a restless one: p says the same, the chance of a night as slow. That of an
accepted night from the others of its case, with the weights as they are without it, tells how heavy the suite's own
tail is: with L = -log p, and u that of the slowest 5 % of nights,

    calibrated p = 0.05 exp(-(L - u) / beta)        beyond u, beta the mean excess of L

beta is 1 or more, unless 2,000 nights prove less than 0.95: the upper 5 %, 1.25 % and 0.3 % of them each.

Worked number: a law that is right has beta = 1 (L is exponential) and u = 3.0; p = 1e-5 stays 1e-5. With beta = 1.5 it
becomes 0.05 exp(-(11.5 - 3.0) / 1.5) = 1.7e-4.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pytest_npubench.stats.checks import BoolArray, FloatArray
from pytest_npubench.stats.student_tail import upper_tail
from pytest_npubench.verdict.noise_law import (
    Nights,
    NoiseLaw,
    counts,
    level_grid,
    log_likelihood,
    middle_and_spread,
)

GAPS = np.log1p([0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.085, 0.10, 0.125, 0.15])
GAPS = np.concatenate([GAPS, -GAPS])
"""By how much a second speed differs from the first."""
SHARES = (0.05, 0.15, 0.35, 0.65)
"""Of the nights that a case spends at its second speed."""
TWO_SPEEDS = 0.02  # of cases
ANYWHERE = 2.0  # the density over a quarter either way
CHANGES = 0.01  # a night
STRAY = 0.002  # an accepted night this unlikely is a stray one
SMALLEST_P = 1e-30


@dataclass(frozen=True, kw_only=True)
class Reference:
    """What accepted nights say of their cases: levels [C, Z] and log likelihoods of nights [C, K, S, Z]. first: the
    entry of each night's first process, [C, K]. Those that measured again did so where the first one was slow: a mean
    with them is no draw from the noise, and the first one is."""

    law: NoiseLaw
    nights: Nights
    first: FloatArray
    levels: FloatArray
    log_likelihoods: FloatArray

    @cached_property
    def log_posterior(self) -> FloatArray:
        """[C, S, Z], not normalised."""
        return np.asarray(self.log_likelihoods.sum(axis=1) + self.law.log_weights[:, None])

    @cached_property
    def weights(self) -> FloatArray:
        return _normalised(self.log_posterior)

    @cached_property
    def level(self) -> FloatArray:
        return np.asarray((self.weights.sum(axis=1) * self.levels).sum(axis=1))

    @cached_property
    def level_variance(self) -> FloatArray:
        return np.asarray((self.weights.sum(axis=1) * (self.levels - self.level[:, None]) ** 2).sum(axis=1))

    @cached_property
    def scale_variance(self) -> FloatArray:
        """Returns the mean of the squared scale."""
        return np.asarray(self.weights.sum(axis=2) @ self.law.scales**2)

    def p(self, tonight: FloatArray, sign: int = 1, variance: FloatArray | float = 1.0) -> FloatArray:
        """Returns the chance of a night as slow as `tonight` [C], or slower; as fast, with the sign -1. NaN stays NaN.
        variance: of an entry, [C], relative to that of one process."""
        error = np.sqrt(np.broadcast_to(variance, tonight.shape))[:, None, None]
        apart = sign * (tonight[:, None] - self.levels)[:, None, :] / (self.law.scales[:, None] * error)
        p = (self.weights * upper_tail(np.nan_to_num(apart), self.law.freedom)).sum(axis=(1, 2))
        return np.where(np.isfinite(tonight), p, np.nan)

    @cached_property
    def left_out(self) -> FloatArray:
        """Returns the p of each accepted night's first process from the other nights of its case, [C, K]; NaN for
        none."""
        weights = _normalised(self.log_posterior[:, None] - self.log_likelihoods)
        apart = (self.first[:, :, None] - self.levels[:, None, :])[:, :, None, :] / self.law.scales[:, None]
        p = (weights * upper_tail(np.nan_to_num(apart), self.law.freedom)).sum(axis=(2, 3))
        return np.where(np.isfinite(self.first), p, np.nan)

    def strays(self, sign: int) -> BoolArray:
        """Which accepted nights are out of line with the others of their case that way, [C, K]."""
        p = np.nan_to_num(self.left_out, nan=0.5)
        return np.asarray((p if sign > 0 else 1 - p) < STRAY)

    def without(self, nights: BoolArray) -> Reference:
        """The reference had these nights, [C, K], not been accepted."""
        return replace(
            self,
            nights=replace(self.nights, entries=np.where(nights, np.nan, self.nights.entries)),
            log_likelihoods=np.where(nights[:, :, None, None], np.float32(0), self.log_likelihoods),
        )

    def of(self, row: int, sign: int) -> Reference:
        """Returns the reference of one case alone; with the sign -1 more is better."""
        return replace(
            self,
            nights=self.nights.of([row]).turned(sign),
            first=sign * self.first[[row]],
            levels=sign * self.levels[[row]],
            log_likelihoods=self.log_likelihoods[[row]],
        )

    def p_of_two_speeds(self, tonight: FloatArray, rows: NDArray[np.int_], gone: Nights, sign: int = 1) -> FloatArray:
        """p of some rows if the case may run at one of two speeds, as 2 of 100 do and its own nights say, those of
        changes that went among them."""
        levels, law = self.levels[rows], self.law
        mixtures = two_speed_likelihoods(law, self.nights.of(rows), gone.of(rows), levels)
        prior = np.log(TWO_SPEEDS / (len(SHARES) * len(GAPS)))
        logs = [self.log_posterior[rows][..., None] + np.log1p(-TWO_SPEEDS)]
        apart = (tonight[rows][:, None] - levels)[:, None, :] / law.scales[:, None]
        single = upper_tail(sign * apart, law.freedom)[..., None]
        tails = [single]
        other = upper_tail(sign * (apart[..., None] - GAPS / law.scales[:, None, None]), law.freedom)
        for share, mixture in zip(SHARES, mixtures, strict=True):
            logs.append(mixture + law.log_weights[:, None, None] + prior)
            tails.append((1 - share) * single + share * other)
        weights = np.concatenate(logs, axis=-1)
        weights = np.exp(weights - weights.max(axis=(1, 2, 3), keepdims=True))
        return np.asarray((weights * np.concatenate(tails, axis=-1)).sum(axis=(1, 2, 3)) / weights.sum(axis=(1, 2, 3)))


def refer(law: NoiseLaw, nights: Nights, first: FloatArray | None = None) -> Reference:
    """first: as in Reference, None where each night is one process."""
    middle, spread = middle_and_spread(nights.entries)
    levels = level_grid(middle, middle, spread, counts(nights.entries), law.typical)
    first = nights.entries if first is None else first
    return Reference(
        law=law, nights=nights, first=first, levels=levels, log_likelihoods=log_likelihood(law, nights, levels)
    )


def two_speed_likelihoods(law: NoiseLaw, nights: Nights, gone: Nights, levels: FloatArray) -> list[FloatArray]:
    """For each of SHARES the log likelihood that all nights come from two speeds, [C, S, Z, G]. Those of changes that
    went count against what they are where a case has one speed: a change that comes in one of 100 nights, to anywhere
    within a quarter of the level, either way."""
    every = nights.with_others(gone)
    single, second = log_likelihood(law, every, levels), log_likelihood(law, every, levels, GAPS)
    present = np.isfinite(every.entries)[:, :, None, None, None]
    apart = np.exp(np.clip(second - single[..., None], -80, 80))  # logaddexp takes four times as long
    number = counts(gone.entries)
    elsewhere = number * np.log(ANYWHERE) + np.where(number > 0, np.log(CHANGES), 0.0)
    elsewhere = elsewhere[:, None, None, None].astype(np.float32)
    return [
        (single[..., None] + np.where(present, np.log((1 - share) + share * apart), 0.0)).sum(axis=1) - elsewhere
        for share in SHARES
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteTail:
    """The tail of p-values of accepted nights: `share` of them have -log p beyond `start`, which then falls by a factor
    e over `excess`."""

    share: float
    start: float
    excess: float

    def calibrated(self, p: FloatArray) -> FloatArray:
        surprise = -np.log(np.maximum(p, SMALLEST_P))
        beyond = self.share * np.exp(-np.maximum(surprise - self.start, 0.0) / self.excess)
        return np.where(surprise > self.start, beyond, np.maximum(p, self.share))

    @property
    def is_light(self) -> bool:
        """Whether it is proven to be lighter than the law's."""
        return self.excess < 1

    def p_at(self, level: float) -> float:
        """Returns the p that is calibrated to a level below `share`."""
        return float(np.exp(-(self.start + self.excess * np.log(self.share / level))))


TOP, NUM_PSEUDO, PSEUDO_EXCESS, MOST_EXCESS = 0.05, 10, 1.25, 4.0
LIGHT_SHARES, LIGHT_NIGHTS, DOUBT = (0.05, 0.0125, 0.003), 2000, 0.2
LIGHT, LEAST_EXCESS = 0.95, 0.5


def fit_tail(p: FloatArray) -> SuiteTail:
    """Fits the tail to p-values of nights. The excess is the larger of that of the upper 5 % and of the upper 1.25 %,
    each drawn to 1.25 by 10 pseudo-nights. Below 0.95 it is what is known of the upper 5, 1.25 and 0.3 % with 80 %
    confidence: heavy tails have a light body."""
    surprise = np.sort(-np.log(np.maximum(p, SMALLEST_P)))
    num_top = min(max(int(len(surprise) * TOP), 5), len(surprise) - 1)
    means = []
    for number in (num_top, min(max(num_top // 4, 3), num_top)):
        beyond = surprise[-number:] - surprise[-number - 1]
        means.append((beyond.sum() + NUM_PSEUDO * PSEUDO_EXCESS) / (number + NUM_PSEUDO))
    excess = float(np.clip(max(means), 1.0, MOST_EXCESS))
    if len(surprise) >= LIGHT_NIGHTS and (proven := _most_excess(surprise)) < LIGHT:
        excess = max(proven, LEAST_EXCESS)
    return SuiteTail(share=num_top / len(surprise), start=float(surprise[-num_top - 1]), excess=excess)


def _most_excess(surprise: FloatArray) -> float:
    """Returns the largest of the upper bounds of the mean excess of each share: a sum of n exponential ones is a gamma
    of n."""
    from scipy.special import gammaincinv

    bounds = []
    for number in (int(len(surprise) * share) for share in LIGHT_SHARES):
        beyond = surprise[-number:] - surprise[-number - 1]
        bounds.append(float(beyond.sum() / gammaincinv(number, DOUBT)))
    return max(bounds)


def _normalised(logs: FloatArray) -> FloatArray:
    """Weights over the last two axes."""
    weights = np.exp(logs - logs.max(axis=(-2, -1), keepdims=True))
    return np.asarray(weights / weights.sum(axis=(-2, -1), keepdims=True))
