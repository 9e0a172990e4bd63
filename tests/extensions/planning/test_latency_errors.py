"""Errors of means and percentiles over all requests, against numpy on the same numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.errors import MeasurementError
from pytest_npubench.extensions.planning.latency_errors import LATENCIES, latency_errors


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
