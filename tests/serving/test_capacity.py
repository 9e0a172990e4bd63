"""Searches on made systems whose capacity is known in closed form."""

import functools
import math

import numpy as np
import pytest
from scipy import optimize

from pytest_npubench.errors import ConfigError, MeasurementError
from pytest_npubench.serving.attainment_curve import CapacityRun, columns_of, crossing, fit_curve
from pytest_npubench.serving.capacity import capacity_ratio, estimate, search

LOW, HIGH = 0.5, 8.0
QUEUE_LIMIT_S = 5.0


def logistic(rate, capacity, slope):
    return 1 / (1 + math.exp(-math.log(9) - slope * math.log(capacity / rate)))


def binomial_system(rate, seed, capacity=1.47, slope=15.0, num=300):
    """Independent requests: no dispersion."""
    return int(np.random.default_rng(seed).binomial(num, logistic(rate, capacity, slope))), num, 1.0


def clustered_system(rate, seed, capacity=1.47, slope=15.0, num=300, dispersion=6.0):
    """Beta-binomial counts, whose variance is 6 times the binomial's: requests of a run are alike."""
    rng, fraction = np.random.default_rng(seed), logistic(rate, capacity, slope)
    strength = (num - dispersion) / (dispersion - 1)
    drawn = rng.beta(max(fraction * strength, 1e-9), max((1 - fraction) * strength, 1e-9))
    return int(rng.binomial(num, drawn)), num, 1.0


def queue(rate, seed, num=1500):
    """An M/M/1 queue, one request a second served, that has run for ever: attained are waits up to the limit.

    P(W <= t) = 1 - rate exp(-(1 - rate) t). No logistic, and neighbouring requests wait alike. From 1/s it overflows.
    """
    rng = np.random.default_rng(seed)
    first = rng.exponential(1 / (1 - rate)) if rate < 1 and rng.random() < rate else 0.0
    steps = rng.exponential(size=num) - rng.exponential(1 / rate, size=num)
    sums = first + np.concatenate([[0.0], np.cumsum(steps)])[:num]
    waits = sums - np.minimum.accumulate(np.minimum(sums, 0.0))
    return int((waits <= QUEUE_LIMIT_S).sum()), num, 1.0


QUEUE_CAPACITY = optimize.brentq(lambda rate: rate * math.exp(-(1 - rate) * QUEUE_LIMIT_S) - 0.1, 0.1, 0.99)


@pytest.mark.parametrize(
    ("system", "capacity", "low", "high"),
    [
        (binomial_system, 1.47, LOW, HIGH),
        pytest.param(clustered_system, 1.47, LOW, HIGH, marks=pytest.mark.soak),
        pytest.param(queue, QUEUE_CAPACITY, 0.2, 3.2, marks=pytest.mark.soak),
    ],
)
def test_intervals_hold_the_capacity_as_often_as_they_say(system, capacity, low, high, is_soak):
    num_searches = 100 if is_soak else 25
    held, rates, widths = 0, [], []
    for seed in range(num_searches):
        found = search(system, low=low, high=high, max_runs=16, seed=seed)
        assert found.reached, found.why
        lower, upper = found.interval
        held += (lower or 0.0) <= capacity <= (upper or math.inf)
        rates.append(found.rate_per_s)
        widths.append((upper or math.inf) / (lower or 1e-9))
    assert held / num_searches >= 0.88
    assert np.median(rates) == pytest.approx(capacity, rel=0.02)
    assert np.median(widths) < 1.4


def test_a_sharp_edge_is_found_within_a_step():
    found = search(lambda rate, seed: (100 if rate <= 1.47 else 0, 100, 1.0), low=LOW, high=HIGH, max_runs=14)
    assert found.rate_per_s == pytest.approx(1.47, rel=0.02)


def test_runs_go_near_the_crossing():
    found = search(binomial_system, low=LOW, high=HIGH, max_runs=20, seed=3)
    assert [round(run.rate_per_s, 1) for run in found.runs[:3]] == [2.0, 1.0, 1.4]
    near = [run for run in found.runs[3:] if 1.1 < run.rate_per_s < 2.0]
    assert len(near) >= 14
    below = sum(run.rate_per_s < 1.47 for run in near)
    assert 3 <= below <= len(near) - 3


def test_the_same_seed_is_the_same_search():
    one, other = (search(clustered_system, low=LOW, high=HIGH, max_runs=10, seed=4) for _ in range(2))
    assert one == other
    assert search(clustered_system, low=LOW, high=HIGH, max_runs=10, seed=5).runs != one.runs
    assert len({run.seed for run in one.runs}) == 10


def test_the_lowest_rate_fails():
    found = search(lambda rate, seed: (10, 100, 1.0), low=2.0, high=HIGH, max_runs=20)
    assert (found.rate_per_s, found.interval, found.reached) == (None, (None, 2.0), False)
    assert found.why == "attainment at 2 requests/s is 10.0% in 3 runs, below 90%"


def test_the_highest_rate_passes():
    found = search(lambda rate, seed: (99, 100, 1.0), low=2.0, high=HIGH, max_runs=20)
    assert (found.rate_per_s, found.interval, found.reached) == (None, (8.0, None), False)
    assert found.why == "attainment at 8 requests/s is 99.0% in 3 runs, above 90%"


def test_one_bad_run_at_the_lowest_rate_does_not_end_the_search():
    calls = []

    def unlucky(rate, seed):
        calls.append(rate)
        return (80, 100, 1.0) if calls == [1.2] else binomial_system(rate, seed, num=100)

    found = search(unlucky, low=1.2, high=1.7, max_runs=16)
    assert calls[:3] == [1.2, 1.2, 1.7]
    assert found.reached
    assert found.rate_per_s == pytest.approx(1.47, rel=0.1)


@pytest.mark.parametrize(("attained", "rate", "word"), [(100, 4.0, "fails"), (0, 1.0, "passes")])
def test_the_budget_ends_on_the_way_to_an_end(attained, rate, word):
    """Two runs, in the middle of 0.5 to 8 and of what is left."""
    found = search(lambda rate, seed: (attained, 100, 10.0), low=LOW, high=HIGH, budget_s=25.0)
    assert len(found.runs) == 2
    low, high = found.interval
    assert (low if attained else high) == pytest.approx(rate, rel=0.02)
    assert (high if attained else low) is None
    assert f"the budget ended before a rate that {word}" in found.why


def test_the_budget_is_kept():
    def dearer(rate, seed):
        attained, arrived, _ = binomial_system(rate, seed)
        return attained, arrived, 2.0

    found = search(dearer, low=LOW, high=HIGH, budget_s=31.0)
    assert sum(run.spent_s for run in found.runs) == 30.0
    one = search(dearer, low=LOW, high=HIGH, budget_s=0.1)
    assert len(one.runs) == 1


def test_few_runs_have_no_interval_and_say_so():
    found = search(binomial_system, low=LOW, high=HIGH, max_runs=4)
    assert found.reached
    assert found.interval is None
    assert "too few of them near the crossing" in found.why


def test_attainment_that_rises_with_the_rate_crosses_nothing():
    runs = [CapacityRun(rate_per_s=1 + i / 10, seed=i, num_attained=80 + 2 * i, num_arrived=100) for i in range(8)]
    found = estimate(runs, low=0.5, high=4.0)
    assert not found.reached
    assert "attainment does not cross 90% between 0.5 and 4 requests/s" in found.why


def test_the_worked_example_of_the_curve():
    runs = [
        CapacityRun(rate_per_s=10.0, seed=0, num_attained=950, num_arrived=1000),
        CapacityRun(rate_per_s=11.0, seed=1, num_attained=800, num_arrived=1000),
    ]
    curve = fit_curve(runs, 0.9, (math.log(5), math.log(20)))
    assert math.exp(curve.log_capacity) == pytest.approx(10.47, abs=0.005)
    assert curve.slope == pytest.approx(16.35, abs=0.05)
    assert estimate(runs, low=5.0, high=20.0).interval is None


def test_the_fit_is_the_best_of_all_places_and_slopes():
    """Against a general optimiser, with slopes that may not be below 0."""
    rng = np.random.default_rng(8)
    for _ in range(5):
        rates = rng.uniform(1.0, 2.2, 8)
        counts = [binomial_system(rate, int(rng.integers(10**6)), slope=8.0) for rate in rates]
        runs = [
            CapacityRun(rate_per_s=rate, seed=0, num_attained=attained, num_arrived=num)
            for rate, (attained, num, _) in zip(rates.tolist(), counts, strict=True)
        ]
        data = columns_of(runs, np.ones(8))

        def deviance(place, data=data):
            logits = math.log(9) + place[1] * (place[0] - data.log_rate)
            return 2 * float(np.sum(data.arrived * np.logaddexp(0, logits) - data.attained * logits))

        best = optimize.minimize(deviance, (0.3, 5.0), method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-9})
        log_capacity, slope = crossing(data, 0.9, (math.log(0.5), math.log(8)))
        assert log_capacity == pytest.approx(best.x[0], abs=1e-3)
        assert slope == pytest.approx(best.x[1], rel=1e-2)


def shared_system(rate, seed, capacity, num=300):
    """What a seed asks is easier or harder for every policy alike: 8 % of capacity."""
    luck = np.random.default_rng((seed, 1)).normal(0, 0.08)
    attained = round(num * logistic(rate, capacity * math.exp(luck), 15.0))
    return attained, num, 1.0


def paired_capacities(seed, pairs_share_seeds=True):
    rates = np.exp(np.linspace(math.log(1.3), math.log(2.0), 14)).tolist()
    capacities = []
    for which, capacity in enumerate((1.6, 1.5)):
        runs = []
        for index, rate in enumerate(rates):
            run_seed = 1000 * seed + index + (0 if pairs_share_seeds else 500 * which)
            attained, num, _ = shared_system(rate, run_seed, capacity)
            runs.append(CapacityRun(rate_per_s=rate, seed=run_seed, num_attained=attained, num_arrived=num))
        capacities.append(estimate(runs, low=LOW, high=HIGH))
    return capacities


def test_pairs_narrow_the_ratio_and_its_interval_holds_it(is_soak):
    num_ratios = 30 if is_soak else 8
    held, paired_widths, apart_widths = 0, [], []
    for seed in range(num_ratios):
        ratio = capacity_ratio(*paired_capacities(seed))
        assert ratio.num_pairs == 14
        low, high = ratio.interval
        held += low <= 1.6 / 1.5 <= high
        paired_widths.append(high / low - 1)
        apart = capacity_ratio(*paired_capacities(seed, pairs_share_seeds=False))
        assert apart.num_pairs == 0
        apart_widths.append(apart.interval[1] / apart.interval[0] - 1)
    assert held / num_ratios >= 26 / 30
    assert np.median(paired_widths) < 0.6 * np.median(apart_widths)


def test_the_ratio_of_two_searches_holds_the_true_one(is_soak):
    num_ratios = 30 if is_soak else 8
    held = 0
    for seed in range(num_ratios):
        faster, slower = (
            search(functools.partial(clustered_system, capacity=rate), low=LOW, high=HIGH, max_runs=16, seed=seed)
            for rate in (1.8, 1.5)
        )
        ratio = capacity_ratio(faster, slower)
        assert ratio.num_pairs >= 2, "both searches begin at the same rates with the same seeds"
        held += ratio.interval[0] <= 1.2 <= ratio.interval[1]
    assert held / num_ratios >= 26 / 30


def test_a_ratio_without_a_capacity_says_which():
    found = search(binomial_system, low=LOW, high=HIGH, max_runs=14)
    failing = search(lambda rate, seed: (0, 100, 1.0), low=LOW, high=HIGH, max_runs=14)
    ratio = capacity_ratio(found, failing)
    assert (ratio.value, ratio.interval) == (None, None)
    assert ratio.why == failing.why
    with pytest.raises(ConfigError, match=r"capacities at 0.9 and 0.8 attainment"):
        capacity_ratio(found, search(binomial_system, target=0.8, low=LOW, high=HIGH, max_runs=3))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"target": 1.0}, "target is 1.0"),
        ({"low": 0.0}, "low is 0.0; want a finite number above 0"),
        ({"high": math.nan}, "high is nan"),
        ({"low": 8.0}, "low is 8.0 and high 8.0 requests/s; want low < high"),
        ({"max_runs": None}, "neither budget_s nor max_runs"),
        ({"max_runs": 0}, "max_runs is 0"),
        ({"budget_s": -1.0}, "budget_s is -1.0"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_searches_that_cannot_be(fields, message):
    with pytest.raises(ConfigError, match=message):
        search(binomial_system, **{"low": LOW, "high": HIGH, "max_runs": 3, **fields})


@pytest.mark.parametrize("told", [(5, 4, 1.0), (-1, 4, 1.0), (0, 0, 1.0), (1, 2, -1.0), (1, 2, math.nan)])
def test_counts_that_cannot_be_name_the_run(told):
    with pytest.raises(MeasurementError, match=r"the run at [\d.]+ requests/s with seed \d+ tells"):
        search(lambda rate, seed: told, low=LOW, high=HIGH, max_runs=3)


def test_no_runs_have_no_capacity():
    with pytest.raises(MeasurementError, match="no runs"):
        estimate([], low=LOW, high=HIGH)
