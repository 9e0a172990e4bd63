"""Errors of means and percentiles against numpy, and the interval of a further round by hand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pytest_npubench.errors import MeasurementError
from pytest_npubench.extensions.planning.latency_errors import LATENCIES, latency_errors
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


@dataclass
class Request:
    ttft_s: float | None
    tpot_s: float | None
    e2e_latency_s: float


def requests(seconds: list[float]) -> list[Request]:
    return [Request(ttft_s=one, tpot_s=one / 2, e2e_latency_s=2 * one) for one in seconds]


times = st.lists(st.floats(0.001, 100.0), min_size=1, max_size=20)


@given(st.lists(st.tuples(times, times, times), min_size=1, max_size=4))
def test_all_requests_count_together(rounds: list[tuple[list[float], list[float], list[float]]]) -> None:
    found = latency_errors([(requests(real), [requests(one), requests(other)]) for real, one, other in rounds])
    assert found.keys() == LATENCIES.keys()
    real, *runs = (np.concatenate([row[side] for row in rounds]) for side in range(3))
    error = found["ttft"]
    assert error.mean_error == pytest.approx(np.mean([run.mean() for run in runs]) / real.mean() - 1)
    predicted = np.mean([np.quantile(run, 0.99) for run in runs])
    assert error.p99_error == pytest.approx(predicted / np.quantile(real, 0.99) - 1)
    tails, means = ([of(run) for run in runs] for of in (lambda run: np.quantile(run, 0.99), np.mean))
    of_runs = [np.std(one) / np.mean(one) for one in (means, tails)]
    told = [error.mean_spread, error.p99_spread]
    assert all(one >= other - 1e-9 for one, other in zip(told, of_runs, strict=True))
    if len(rounds) == 1:
        assert told == pytest.approx(of_runs, abs=1e-9)
    by_round = [np.mean([np.mean(one), np.mean(other)]) / np.mean(real) - 1 for real, one, other in rounds]
    assert error.round_mean_error == pytest.approx(np.median(by_round))
    assert found["e2e"].mean_s == pytest.approx(2 * error.mean_s)


@given(times, st.integers(1, 5))
def test_runs_that_are_what_was_measured_are_off_by_nothing(seconds: list[float], number: int) -> None:
    """However many: a percentile of all their requests at once would be off."""
    for error in latency_errors([(requests(seconds), [requests(seconds)] * number)]).values():
        assert (error.mean_error, error.p99_error) == pytest.approx((0.0, 0.0))


def test_a_mean_is_told_as_well_as_rounds_tell_it() -> None:
    """Against the closed form: the error of n rounds of one request each has the standard deviation of theirs over the
    root of n, the mean being known."""
    random = np.random.default_rng(1)
    real = random.normal(1.0, 0.05, 400)
    error = latency_errors([(requests([one]), [requests([1.0])]) for one in real])["e2e"]
    assert error.mean_spread == pytest.approx(real.std() / 20, rel=0.2)


def test_a_tail_that_hangs_on_one_round_is_told_badly() -> None:
    """All runs agree, and one round of ten has a request that no run has."""
    steady = [1.0] * 30
    rounds = [(requests(steady), [requests(steady)] * 3)] * 9
    error = latency_errors([*rounds, (requests([*steady, 3.0, 3.0, 3.0, 3.0]), [requests(steady)] * 3)])["ttft"]
    assert error.p99_error < -0.5
    assert error.p99_spread > 0.2
    assert latency_errors(rounds)["ttft"].p99_spread == 0.0


def test_rounds_without_a_second_token_say_nothing_of_tpot() -> None:
    one = Request(ttft_s=1.0, tpot_s=None, e2e_latency_s=1.0)
    two = Request(ttft_s=1.0, tpot_s=0.5, e2e_latency_s=2.0)
    found = latency_errors([([one], [[one]]), ([two], [[two]])])
    assert found["tpot"].mean_s == 0.5
    with pytest.raises(MeasurementError, match="no request of 1 has a tpot"):
        latency_errors([([one], [[one]])])
