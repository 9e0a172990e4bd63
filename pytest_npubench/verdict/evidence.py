"""Evidence over nights that a case changed, and that a change went.

For each night that a change may have begun at and each size it may have, the Bayes factor of "changed then, by so much"
against "never changed": both with the case's level and scale integrated over (noise_law), the latter in part by a case
that runs at two speeds. The evidence is their sum over nights and mean over sizes, nine of ten up to 12 %,

    E = sum over nights of mean over sizes of  P(all nights | changed then by that size) / P(all nights | unchanged)

Where nothing changed its mean is the number of nights, so it reaches A in one of A case-nights at most (Shiryaev 1963,
Roberts 1966), and in far fewer, as a night that takes it there takes it far beyond (Pollak 1987). Noise that lasts for
nights looks like a change: with a lag-1 correlation r of the suite's nights the logarithm counts (1 - r) / (1 + r) of
itself, as so many nights are worth (Bayley & Hammersley 1946).

A change that was found is gone where the evidence for "changed at first and as before since some later night", against
"still changed", reaches 60.

Worked number: scale 1 % with 7 degrees, a level that is known, one night 5 % slower: the ratio of densities of +5 %,
f(0) / f(5) = (1 + 25 / 7)^4 = 436; two such nights 190,000.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pytest_npubench.stats.checks import BoolArray, FloatArray
from pytest_npubench.verdict.noise_law import (
    Nights,
    NoiseLaw,
    counts,
    level_grid,
    log_likelihood,
    log_sum,
    middle_and_spread,
)
from pytest_npubench.verdict.prediction import GAPS, SHARES, Reference, two_speed_likelihoods

SMALL = [0.015, 0.02, 0.027, 0.035, 0.045, 0.055, 0.068, 0.083, 0.10, 0.12]
LARGE = [0.15, 0.19, 0.25, 0.4, 0.7, 1.2, 3.0]
SIZES = np.log1p([*SMALL, *LARGE])
"""So close that no size of a quiet case lies far between two."""
SMALL_SHARE = 0.9  # of changes; a large one needs no prior in its favour
PRIOR = np.array([SMALL_SHARE / len(SMALL)] * len(SMALL) + [(1 - SMALL_SHARE) / len(LARGE)] * len(LARGE))
LOG_PRIOR = np.log(PRIOR)
NUM_NIGHTS = 24  # a change may have begun at one of the last so many
MIN_BEFORE = 5  # nights before the first change, fewer where a case has fewer
TWO_SPEEDS = 0.03  # of cases, as the evidence allows for
LEANING = 2.8
CLIP = 4.0
ROWS_AT_ONCE = 40  # or memory is what takes the time
RETURNED, RETURNED_ALONE = np.log(60.0), np.log(8.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """By case, [C] each: the log evidence of a change for the worse and the night, a column, that it most likely began
    at. -inf for a case whose nights do not lean that way."""

    log_evidence: FloatArray
    first: NDArray[np.int_]


def change_for_worse(law: NoiseLaw, nights: Nights, gone: Nights, number: FloatArray, tempering: float) -> Change:
    """nights: [C, n], each row's to the left, oldest first and tonight last; gone: those of changes that went; number:
    how many of `nights` are accepted."""
    change = Change(log_evidence=np.full(len(number), -np.inf), first=np.zeros(len(number), dtype=np.int_))
    may_begin = beginnings(nights, number)
    _, spread = middle_and_spread(_before(nights, may_begin))
    rows = np.flatnonzero(leaning(law, nights, may_begin, np.maximum(spread, law.typical)) > LEANING)
    for start in range(0, len(rows), ROWS_AT_ONCE):
        chosen = rows[start : start + ROWS_AT_ONCE]
        evidence, first = _evidence(law, nights.of(chosen), gone.of(chosen), may_begin[chosen])
        change.log_evidence[chosen] = np.where(evidence > 0, evidence * tempering, evidence)
        change.first[chosen] = first
    return change


def beginnings(nights: Nights, num_accepted: FloatArray) -> BoolArray:
    """At which nights a change may have begun, [C, n]."""
    column, number = np.arange(nights.entries.shape[1]), counts(nights.entries)
    earliest = np.maximum(np.minimum(MIN_BEFORE, num_accepted), number - NUM_NIGHTS)
    return np.asarray((column >= earliest[:, None]) & (column < number[:, None]))


def leaning(law: NoiseLaw, nights: Nights, may_begin: BoolArray, before_change: FloatArray | None = None) -> FloatArray:
    """How far the nights since some night are from those before, in errors of their mean, at most; [C]. A night counts
    4 scales at most. It costs nothing, and most cases need no more.

    before_change: the spread of the nights before any change, where that counts if it is smaller: of nights of which
    half are changed the spread is the change.
    """
    middle, spread = middle_and_spread(nights.entries)
    spread = spread if before_change is None else np.minimum(spread, before_change)
    before = _before(nights, may_begin)
    middle = np.minimum(middle, np.nanmedian(before, axis=1))
    score = (nights.entries - middle[:, None]) / np.maximum(spread, 0.5 * law.typical)[:, None]
    score = np.nan_to_num(np.clip(score, -CLIP, CLIP))
    present = np.isfinite(nights.entries)
    since, number = (np.cumsum(part[:, ::-1], axis=1)[:, ::-1] for part in (score, present))
    scan = np.where(may_begin, since / np.sqrt(np.maximum(number, 1)), -np.inf)
    return np.asarray(scan.max(axis=1))


def _before(nights: Nights, may_begin: BoolArray) -> FloatArray:
    """Returns the entries before any change, NaN otherwise."""
    return np.where(np.cumsum(may_begin, axis=1) == 0, nights.entries, np.nan)


def _evidence(law: NoiseLaw, nights: Nights, gone: Nights, may_begin: BoolArray) -> tuple[FloatArray, NDArray[np.int_]]:
    levels = _levels(law, nights, may_begin)
    unchanged = log_likelihood(law, nights, levels)
    changed = log_likelihood(law, nights, levels, SIZES)
    before = (np.cumsum(unchanged, axis=1) - unchanged)[..., None]
    since = np.cumsum(changed[:, ::-1], axis=1)[:, ::-1]
    weights = law.log_weights[:, None].astype(np.float32)
    joint = before + since + weights[..., None]  # [C, n, S, Z, D]
    by_night = log_sum(log_sum(joint, axis=3), axis=2)
    by_night = log_sum(by_night.astype(np.float64) + LOG_PRIOR, axis=2)
    by_night = np.where(may_begin, by_night, -np.inf)
    never = log_sum((unchanged.sum(axis=1) + weights).reshape(len(levels), -1), axis=1).astype(np.float64)
    evidence = log_sum(by_night, axis=1) - never
    rows = np.flatnonzero(evidence > 0)  # the others are none the more so by allowing for two speeds
    if len(rows):
        mixtures = two_speed_likelihoods(law, nights.of(rows), gone.of(rows), levels[rows])
        two = [log_sum((one + weights[..., None]).reshape(len(rows), -1), axis=1) for one in mixtures]
        two_speeds = log_sum(np.array(two), axis=0) - np.log(len(SHARES) * len(GAPS))
        allowed = np.logaddexp(np.log1p(-TWO_SPEEDS) + never[rows], np.log(TWO_SPEEDS) + two_speeds)
        evidence[rows] += never[rows] - allowed
    return evidence, by_night.argmax(axis=1)


def _levels(law: NoiseLaw, nights: Nights, may_begin: BoolArray) -> FloatArray:
    """The grid reaches from the nights before any change to all of them: where nothing changed, its level is theirs."""
    before = _before(nights, may_begin)
    middle, spread = middle_and_spread(before)
    overall = np.nanmedian(nights.entries, axis=1)
    return level_grid(np.minimum(middle, overall), np.maximum(middle, overall), spread, counts(before), law.typical)


def is_gone(law: NoiseLaw, reference: Reference, since: Nights, log_alarm: float, tempering: float) -> bool:
    """Whether a change for the worse of one case, of which `since` [1, m] holds the nights from its first one to
    tonight, is gone: whether they prove that the case is as before since one of them. A change that one night or two
    alone have shown, and that never reached the alarm, is gone at less.
    """
    start = reference.log_posterior[0]
    unchanged = log_likelihood(law, since, reference.levels)[0]
    changed = log_likelihood(law, since, reference.levels, SIZES)[0]
    until = np.cumsum(changed, axis=0)
    still = _integrated(start[..., None] + until) + LOG_PRIOR  # [m, D]: changed on each night until then
    never = _integrated((start + np.cumsum(unchanged, axis=0))[..., None])
    evidence = log_sum(still - never, axis=1) * tempering
    after = np.cumsum(unchanged[::-1], axis=0)[::-1]
    # as before from that night on
    back = _integrated(start[..., None] + until - changed + after[..., None]) + LOG_PRIOR
    returned = (log_sum(back.ravel(), axis=0) - log_sum(still[-1], axis=0)) * tempering
    proven = evidence.max() >= log_alarm
    limit = RETURNED if proven or len(evidence) > 2 else RETURNED_ALONE
    return bool(returned >= limit)


def _integrated(logs: FloatArray) -> FloatArray:
    """Over scales and levels, the second and third axis."""
    return log_sum(log_sum(logs, axis=2), axis=1)


def lag_correlation(reference: Reference) -> float:
    """How much the nights of a case resemble the night before, over all cases: the lag-1 correlation of normal scores
    of the accepted nights, 0 to 0.8, drawn to 0 by 50 pseudo-pairs. Scores about their own mean correlate by -1 / K,
    which is put back."""
    from scipy.special import ndtri

    scores = np.clip(ndtri(np.clip(np.nan_to_num(reference.left_out, nan=0.5), 1e-6, 1 - 1e-6)), -3.0, 3.0)
    present = np.isfinite(reference.nights.entries)
    pairs = present[:, 1:] & present[:, :-1]
    number = counts(reference.nights.entries)[:, None]
    products = np.where(pairs, scores[:, 1:] * scores[:, :-1], 0.0).sum()
    squares = (np.where(pairs, scores[:, 1:] ** 2 + scores[:, :-1] ** 2, 0.0) / 2).sum()
    bias = np.where(pairs, 1 / number, 0.0).sum()
    num_pairs = int(pairs.sum())
    if not num_pairs or squares <= 0:
        return 0.0
    correlation = products / squares + bias / num_pairs
    return float(np.clip(correlation * num_pairs / (num_pairs + 50), 0.0, 0.8))


def tempering_of(correlation: float) -> float:
    return (1 - correlation) / (1 + correlation)
