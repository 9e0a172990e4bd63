"""How far a series in a further round lies from the mean of those that were seen.

Values are [..., R rounds, S series], each the sum of a series' own offset, its round's drift, and the luck of the two
together (a two-way layout, one value a cell). Of the mean squares M of rounds, series and rest, over S, R and 1:

    variance = M_rounds / S (1 + 1 / R) + M_series / R + M_rest (1 - 1 / R - 1 / S)

is that of a seen series in round R + 1 about the mean of all, each part with its degrees of freedom: R - 1, S - 1,
(R - 1)(S - 1). A single series has the first part alone.

Worked example: one series of 0.0 and 0.2 in two rounds: M_rounds = 0.02, a variance of 0.03 of one degree of freedom,
and a 90 % interval of 0.1 +- 6.31 x 0.173.
"""

from __future__ import annotations

import math

import numpy as np

from pytest_npubench.errors import MeasurementError
from pytest_npubench.stats.checks import FloatArray
from pytest_npubench.stats.error import t_half_width

LEAST_ROUNDS = 2
LEVEL = 0.99
NUM_DRAWS = 2000


def half_width(values: FloatArray, coverage: float, *, known_sd: float = 0.0) -> FloatArray:
    """Half the width of the interval about the mean that holds a further value, in the shape of values[..., 0, 0];
    known_sd is added to its scatter. Raises MeasurementError for fewer than two rounds."""
    rounds, series = values.shape[-2:]
    if rounds < LEAST_ROUNDS:
        raise MeasurementError(f"{rounds} rounds tell no spread between rounds; want at least {LEAST_ROUNDS}")
    of_rounds, of_series, rest = _mean_squares(values)
    parts = [(of_rounds / series * (1 + 1 / rounds), rounds - 1.0), (np.full_like(rest, known_sd**2), math.inf)]
    if series > 1:
        parts += [
            (of_series / rounds, series - 1.0),
            (rest * (1 - 1 / rounds - 1 / series), (rounds - 1.0) * (series - 1)),
        ]
    variances, freedom = zip(*parts, strict=True)
    return t_half_width(np.stack(variances), np.array(freedom), coverage)


def most_misses(values: FloatArray, coverage: float, *, known_sd: float = 0.0, seed: int = 0) -> int:
    """How many of R x S values, each round's held against the interval of the other rounds, are outside it by chance
    once in a hundred times at most. Misses come together, since a round's series share its drift and all intervals
    their rounds, so that the binomial bound would be too small: values with the spreads of these are drawn instead."""
    rounds, series = values.shape
    rng = np.random.default_rng(seed)
    of_rounds, of_series, rest = (float(one) for one in _mean_squares(values))
    size = (NUM_DRAWS, rounds, series)
    drawn = rng.standard_normal((NUM_DRAWS, rounds, 1)) * math.sqrt(max(0.0, of_rounds - rest) / series)
    drawn = drawn + rng.standard_normal((NUM_DRAWS, 1, series)) * math.sqrt(max(0.0, of_series - rest) / rounds)
    drawn = drawn + rng.standard_normal(size) * math.sqrt(rest if series > 1 else 0.0)
    lucky = drawn + rng.standard_normal(size) * known_sd
    misses = np.zeros(NUM_DRAWS)
    for left_out in range(rounds):
        others = np.delete(drawn, left_out, axis=1)
        off = np.abs(lucky[:, left_out] - others.mean(axis=(1, 2))[:, None])
        misses += (off > half_width(others, coverage, known_sd=known_sd)[:, None]).sum(axis=1)
    return int(np.quantile(misses, LEVEL, method="higher"))


def _mean_squares(values: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The mean squares of rounds, of series and of the rest, in the shape of values[..., 0, 0]; 0 without any."""
    rounds, series = values.shape[-2:]
    mean = values.mean(axis=(-2, -1), keepdims=True)
    of_round = values.mean(axis=-1, keepdims=True) - mean
    of_series = values.mean(axis=-2, keepdims=True) - mean
    rest = values - mean - of_round - of_series
    return (
        series * (of_round**2).sum(axis=(-2, -1)) / (rounds - 1),
        rounds * (of_series**2).sum(axis=(-2, -1)) / max(1, series - 1),
        (rest**2).sum(axis=(-2, -1)) / max(1, (rounds - 1) * (series - 1)),
    )
