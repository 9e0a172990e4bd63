"""The interval of a further round by hand, and how often it holds values that are drawn as the layout says."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from pytest_npubench.errors import MeasurementError
from pytest_npubench.extensions.planning.rounds_spread import half_width, most_misses
from pytest_npubench.stats.checks import FloatArray

COVERAGE = 0.9
NUM_CAMPAIGNS = 4000


def drawn(rng: np.random.Generator, rounds: int, series: int, spreads: tuple[float, float, float]) -> FloatArray:
    """[campaigns, rounds, series], of drift between rounds, offsets of series and luck."""
    drift, offset, luck = (
        spread * rng.standard_normal(size)
        for spread, size in zip(
            spreads,
            ((NUM_CAMPAIGNS, rounds, 1), (NUM_CAMPAIGNS, 1, series), (NUM_CAMPAIGNS, rounds, series)),
            strict=True,
        )
    )
    found: FloatArray = drift + offset + luck
    return found


def test_two_rounds_of_one_series_by_hand() -> None:
    """A variance of 0.02 x (1 + 1/2), of one degree of freedom: t(0.95) = 6.3138."""
    assert float(half_width(np.array([[0.0], [0.2]]), COVERAGE)) == pytest.approx(6.3138 * 0.03**0.5, rel=1e-4)
    assert float(half_width(np.zeros((2, 1)), COVERAGE, known_sd=0.02)) == pytest.approx(1.645 * 0.02, rel=1e-3)


@pytest.mark.parametrize(("rounds", "series"), [(2, 1), (2, 4), (3, 2), (3, 8), (6, 5)])
@pytest.mark.parametrize("spreads", [(0.1, 0.0, 0.1), (0.1, 0.05, 0.02), (0.0, 0.0, 0.1), (0.1, 0.0, 0.0)])
def test_a_further_round_is_held_as_often_as_it_says(
    rounds: int, series: int, spreads: tuple[float, float, float]
) -> None:
    """Welch and Satterthwaite's degrees of freedom are rough where two rounds tell little: 5 points at most."""
    values = drawn(np.random.default_rng(0), rounds + 1, series, spreads)
    known = values[:, :rounds]
    off = np.abs(values[:, rounds] - known.mean(axis=(1, 2))[:, None])
    held = float((off <= half_width(known, COVERAGE)[:, None]).mean())
    assert COVERAGE - 0.05 < held < 0.96


def test_misses_come_together_where_rounds_share_their_drift() -> None:
    """Twelve independent values miss at most 4 in 99 of 100 runs; those of a round that drifts miss together."""
    rng = np.random.default_rng(0)
    alone = most_misses(drawn(rng, 3, 4, (0.0, 0.0, 0.1))[0], COVERAGE)
    together = most_misses(drawn(rng, 3, 4, (0.1, 0.0, 0.001))[0], COVERAGE)
    assert stats.binom.ppf(0.99, 12, 0.1) == 4
    assert abs(alone - 4) <= 1
    assert together >= 4
    assert together % 4 == 0


def test_one_round_tells_nothing() -> None:
    with pytest.raises(MeasurementError, match="1 rounds tell no spread between rounds; want at least 2"):
        half_width(np.zeros((1, 3)), COVERAGE)
