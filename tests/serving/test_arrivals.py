import hashlib
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pytest_npubench.errors import ConfigError, WorkloadError
from pytest_npubench.serving.arrivals import gamma, load_of, poisson, realised, replay, uniform

rates = st.floats(0.01, 1000)
seeds = st.integers(0, 2**40)


def gaps_of(times):
    return np.diff([0.0, *times])


@pytest.mark.parametrize("rate", [0.5, 13.0])
def test_poisson_gaps_are_exponential(rate):
    gaps = gaps_of(poisson(rate, 20_000, 5))
    assert stats.kstest(gaps, stats.expon(scale=1 / rate).cdf).pvalue > 0.01


@pytest.mark.parametrize("cv", [0.5, 1.0, 1.83])
def test_gamma_gaps_are_gamma_with_the_cv(cv):
    gaps = gaps_of(gamma(2.0, cv, 20_000, 6))
    assert stats.kstest(gaps, stats.gamma(1 / cv**2, scale=cv**2 / 2.0).cdf).pvalue > 0.01
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.1)


@given(rates, seeds)
def test_gamma_of_cv_1_is_poisson(rate, seed):
    assert gamma(rate, 1.0, 20, seed) == pytest.approx(poisson(rate, 20, seed), rel=1e-9)


@given(rates, seeds, st.integers(1, 30), st.integers(1, 30))
def test_a_shorter_load_begins_a_longer_one(rate, seed, fewer, more):
    first, second = sorted((fewer, more))
    assert poisson(rate, second, seed)[:first] == poisson(rate, first, seed)
    assert gamma(rate, 1.83, second, seed)[:first] == gamma(rate, 1.83, first, seed)


@given(rates, seeds)
def test_twice_the_rate_is_the_same_pattern_at_half_the_gaps(rate, seed):
    halves = [time / 2 for time in poisson(rate, 20, seed)]
    assert poisson(2 * rate, 20, seed) == pytest.approx(halves)


@given(rates, st.floats(0.01, 20), seeds)
def test_arrivals_are_in_order_and_finite(rate, cv, seed):
    for times in (poisson(rate, 50, seed), gamma(rate, cv, 50, seed), uniform(rate, 50)):
        assert len(times) == 50
        assert all(math.isfinite(time) and time >= 0 for time in times)
        assert list(times) == sorted(times)


def test_another_seed_is_another_load():
    assert poisson(1.0, 10, 0) != poisson(1.0, 10, 1)
    assert gamma(1.0, 2.0, 10, 0) != gamma(1.0, 2.0, 10, 1)


def test_the_stream_behind_a_seed_is_pinned():
    """PCG64's own integers, so that no other generator may take its place: arrivals would differ between machines."""
    words = np.random.PCG64(7).random_raw(3)
    uniforms = [(int(word) >> 11) * 2.0**-53 for word in words]
    gaps = [-math.log1p(-one) / 4.0 for one in uniforms]
    assert poisson(4.0, 3, 7) == pytest.approx(tuple(np.cumsum(gaps)), rel=1e-12)
    rounded = ",".join(f"{time:.9f}" for time in poisson(4.0, 1000, 7))
    assert hashlib.sha256(rounded.encode()).hexdigest()[:12] == "1c88ba286e06"


def test_bursts():
    """Gaps of CV 4 are mostly so short that a sum of them keeps none of their digits: their moments are left."""
    gaps = gaps_of(gamma(2.0, 4.0, 100_000, 6))
    assert gaps.mean() == pytest.approx(0.5, rel=0.05)
    assert gaps.std() / gaps.mean() == pytest.approx(4.0, rel=0.05)
    assert np.mean(gaps < 0.01) == pytest.approx(stats.gamma(1 / 16, scale=8.0).cdf(0.01), abs=0.01)


def test_evenly_spaced():
    assert uniform(4.0, 3) == (0.25, 0.5, 0.75)
    assert realised(uniform(4.0, 3)) == pytest.approx((4.0, 0.0))


def test_the_worked_number_of_realised():
    rate, cv = realised([0, 1, 2, 4])
    assert (rate, cv) == pytest.approx((0.75, math.sqrt(1 / 3) / (4 / 3)))
    assert realised([3.0, 5.0]) == (0.5, None)


@given(st.lists(st.floats(0, 100), min_size=3, max_size=20), st.floats(0.1, 10), st.floats(-1000, 1000))
def test_realised_knows_units_and_no_origin(gaps, factor, origin):
    times = np.cumsum(gaps)
    if times[-1] - times[0] < 0.1:
        return
    rate, cv = realised(times)
    moved_rate, moved_cv = realised(times * factor + origin)
    assert moved_rate == pytest.approx(rate / factor)
    assert moved_cv == pytest.approx(cv, abs=1e-6)


def test_a_trace_as_it_is_and_at_another_rate():
    times = [100.0, 101.0, 104.0]
    assert replay(times) == (0.0, 1.0, 4.0)
    assert replay(times, rate_per_s=1.0) == (0.0, 0.5, 2.0)
    assert replay([5.0]) == (0.0,)


@given(st.lists(st.floats(0.01, 100), min_size=2, max_size=20), rates)
def test_a_replayed_trace_has_the_rate_asked_for_and_its_own_cv(gaps, rate):
    times = np.cumsum(gaps).tolist()
    replayed = realised(replay(times, rate))
    assert replayed.rate_per_s == pytest.approx(rate)
    if replayed.cv is not None:
        assert replayed.cv == pytest.approx(realised(times).cv, abs=1e-9)


def test_loads():
    first, second = load_of((0.5, 2.0), [(10, 3), (20, 1)])
    assert (first.id, first.arrival_s, first.prompt_tokens, first.output_tokens) == (0, 0.5, 10, 3)
    assert (second.id, second.arrival_s, second.prompt_tokens, second.output_tokens) == (1, 2.0, 20, 1)


@pytest.mark.parametrize("rate", [0, -1.0, math.nan, math.inf])
def test_rates_that_cannot_be(rate):
    for call in (
        lambda: poisson(rate, 3, 0),
        lambda: gamma(rate, 1.0, 3, 0),
        lambda: uniform(rate, 3),
        lambda: replay([0.0, 1.0], rate),
    ):
        with pytest.raises(ConfigError, match=r"rate_per_s is .*; want a finite number above 0"):
            call()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: gamma(1.0, 0.0, 3, 0), ConfigError, "cv is 0.0; want 0.001 to 100"),
        (lambda: gamma(1.0, -1.0, 3, 0), ConfigError, "cv is -1.0"),
        (lambda: gamma(1.0, math.nan, 3, 0), ConfigError, "cv is nan"),
        (lambda: poisson(1.0, 0, 0), ConfigError, "n is 0; want a whole number of requests >= 1"),
        (lambda: poisson(1.0, 2.5, 0), ConfigError, "n is 2.5"),
        (lambda: uniform(1.0, -1), ConfigError, "n is -1"),
        (lambda: poisson(1.0, 3, -1), ConfigError, "seed is -1; want a whole number >= 0"),
        (lambda: poisson(1.0, 3, None), ConfigError, "seed is None"),
        (lambda: replay([]), WorkloadError, "no arrival times"),
        (lambda: replay([0.0, 2.0, 1.0]), WorkloadError, r"arrival time 2 is 1.0 after 2.0; want them in order"),
        (lambda: replay([0.0, math.nan]), WorkloadError, "arrival time 1 is nan"),
        (lambda: replay([1.0, 1.0], 2.0), WorkloadError, "2 arrivals within 0.0 s have no rate"),
        (lambda: realised([1.0]), WorkloadError, "1 arrivals within 0.0 s have no rate"),
        (lambda: realised([1.0, 0.0]), WorkloadError, "want them in order"),
        (lambda: load_of([1.0], [(1, 1), (2, 2)]), WorkloadError, "1 arrival times for 2 lengths; want one for each"),
        (lambda: load_of([1.0, 2.0], [(1, 1)]), WorkloadError, "2 arrival times for 1 lengths"),
        (lambda: load_of([], []), WorkloadError, "no request arrives"),
        (lambda: load_of([2.0, 1.0], [(1, 1), (1, 1)]), WorkloadError, "want arrivals in order"),
        (lambda: load_of([1.0], [(1, 0)]), WorkloadError, "request 0: output_tokens is 0"),
        (lambda: load_of([-1.0], [(1, 1)]), WorkloadError, "request 0: arrival_s is -1.0"),
    ],
)
def test_arrivals_that_cannot_be(call, error, message):
    with pytest.raises(error, match=message):
        call()
