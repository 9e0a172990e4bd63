"""Each fit finds a truth that was put in, under noise, and nothing where there is nothing."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_npubench.errors import MeasurementError
from pytest_npubench.extensions.pairs.partition.descriptors import (
    RatioFit,
    fit_bandwidth_gain,
    fit_graph_generation,
    fit_linear_past_threshold,
    fit_ratio,
    fit_stage,
    fit_sync,
)

SEEDS = range(6)


def noisy(values, noise: float, seed: int) -> list[float]:
    generator = np.random.default_rng(seed)
    values = np.asarray(values, dtype=float)
    return list(values * (1 + noise * generator.standard_normal(values.shape)))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_threshold_of_gpu_1(seed):
    tokens = np.array([1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256])
    truth_s = 100e-6 + 2e-6 * np.maximum(tokens - 40, 0)
    found = fit_linear_past_threshold(list(tokens), noisy(truth_s, 0.02, seed))
    assert found.threshold == pytest.approx(40, abs=8)
    assert found.floor_s == pytest.approx(100e-6, rel=0.05)
    assert found.slope_s == pytest.approx(2e-6, rel=0.1)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_straight_line_has_no_threshold(seed):
    tokens = [1, 2, 4, 8, 16, 32, 64, 128, 256]
    found = fit_linear_past_threshold(tokens, noisy([5e-6 + 1e-6 * size for size in tokens], 0.02, seed))
    assert found.threshold is None
    assert found.slope_s == pytest.approx(1e-6, rel=0.1)


def test_a_line_without_noise_has_no_threshold():
    assert fit_linear_past_threshold([1, 2, 3, 4, 5], [1.0, 2.0, 3.0, 4.0, 5.0]).threshold is None


@pytest.mark.parametrize("width", [8, 32, 33])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_stage_of_npu_1(width, seed):
    sizes = list(range(4, 200, 3))
    truth_s = [50e-6 + 100e-6 * -(-size // width) for size in sizes]
    found = fit_stage(sizes, noisy(truth_s, 0.02, seed))
    assert found.width == pytest.approx(width, abs=1 if width > 8 else 0)
    assert found.step_s == pytest.approx(100e-6, rel=0.1)


def test_the_stage_without_noise_is_exact():
    for width in (5, 32, 64):
        sizes = list(range(1, 4 * width + 2))
        assert fit_stage(sizes, [1e-4 * -(-size // width) for size in sizes]).width == width


@pytest.mark.parametrize("noise", [0.0, 0.03])
@pytest.mark.parametrize("seed", SEEDS)
def test_none_found_where_there_is_no_stage(noise, seed):
    sizes = list(range(4, 200, 3))
    found = fit_stage(sizes, noisy([50e-6 + 3e-6 * size for size in sizes], noise, seed))
    assert found.width is None
    assert found.step_s == pytest.approx(3e-6, rel=0.1)


@pytest.mark.parametrize("seed", SEEDS)
def test_none_found_where_the_time_is_flat(seed):
    sizes = list(range(4, 200, 3))
    assert fit_stage(sizes, noisy([1e-4] * len(sizes), 0.05, seed)).width is None
    assert fit_linear_past_threshold(sizes, noisy([1e-4] * len(sizes), 0.05, seed)).threshold is None


def leaves_one_outside(found: RatioFit) -> bool:
    return found.interval is not None and not found.interval[0] <= 1 <= found.interval[1]


@pytest.mark.parametrize("seed", SEEDS)
def test_order_and_shape_ratios(seed):
    drift = np.linspace(1, 3, 12)  # what both have in common does not matter
    found = fit_ratio(noisy(6e-3 * drift, 0.05, seed), noisy(1e-3 * drift, 0.05, seed + 100))
    assert found.ratio == pytest.approx(6, rel=0.1)
    assert leaves_one_outside(found)
    assert found.interval is not None
    assert found.interval[0] < found.ratio < found.interval[1]


def test_a_ratio_of_one_and_too_few_rounds_find_nothing():
    false_alarms = sum(
        leaves_one_outside(fit_ratio(noisy([1e-3] * 12, 0.05, seed), noisy([1e-3] * 12, 0.05, seed + 1000)))
        for seed in range(100)
    )
    assert false_alarms <= 10, "5 % are allowed, of 100"
    few = fit_ratio([6.0] * 5, [1.0] * 5)
    assert (few.ratio, few.interval) == (6, None)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_bandwidth_gain_of_memory_1(seed):
    """The paper's: 43.3 GB/s alone, 59.5 GB/s together, 1.37 times as much."""
    alone = {"gpu": noisy([43.3e9] * 9, 0.02, seed), "npu": noisy([40e9] * 9, 0.02, seed + 1)}
    together = {"gpu": noisy([32e9] * 9, 0.02, seed + 2), "npu": noisy([27.5e9] * 9, 0.02, seed + 3)}
    found = fit_bandwidth_gain(alone, together)
    assert found.ratio == pytest.approx(59.5 / 43.3, rel=0.03)
    assert leaves_one_outside(found)


def test_synchronisation_by_mechanism():
    trips_s = [1e-6] * 980 + [5e-5] * 20
    found = fit_sync("flag", trips_s)
    assert (found.mechanism, found.p50_s, found.p99_s) == ("flag", 1e-6, pytest.approx(5e-5))
    assert fit_sync("flag", trips_s[:99]).p99_s is None


@pytest.mark.parametrize("seed", SEEDS)
def test_graph_generation_grows_or_does_not(seed):
    """Fig. 8's growth, and XLA's on a CPU, which is none."""
    elements = [float(size) for size in (135, 200, 256, 400, 525, 700, 850, 1000)]
    grows = fit_graph_generation(elements, noisy([0.152 + 0.0019 * size for size in elements], 0.03, seed))
    assert grows.slope_s == pytest.approx(0.0019, rel=0.1)
    flat = fit_graph_generation(elements, noisy([0.025] * len(elements), 0.2, seed))
    assert flat.slope_s is None
    assert flat.base_s == pytest.approx(0.025, rel=0.4)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: fit_stage([1, 2, 3], [1, 2, 3]), "3 different sizes and 3 times; want a time for each of 6 or more"),
        (lambda: fit_linear_past_threshold([1, 1, 1, 1, 1], [1] * 5), "1 different sizes"),
        (lambda: fit_graph_generation([1, 2, 3, 4], [1, 2, 3]), "want a time for each of 4 or more"),
        (lambda: fit_graph_generation([1, 2, 3, 4], [1, 2, 3, 0]), "seconds: 0; want numbers above 0"),
        (lambda: fit_graph_generation([1, 2, 3, 4], [1, 2, 3, float("nan")]), "seconds: sample 3 of 4 is nan"),
        (lambda: fit_ratio([1, 2], [1]), "2 and 1 samples; want one of each a round"),
        (lambda: fit_ratio([], []), "slower_s: no samples"),
        (lambda: fit_ratio([1.0], [0.0]), "faster_s: 0.0; want numbers above 0"),
        (lambda: fit_bandwidth_gain({"gpu": [1.0]}, {"npu": [1.0]}), "not of the same units and rounds"),
        (lambda: fit_bandwidth_gain({"gpu": [1.0]}, {"gpu": [1.0, 2.0]}), "not of the same units and rounds"),
        (lambda: fit_sync("flag", []), "round trips by flag: no samples"),
    ],
)
def test_what_cannot_be_fitted(call, words):
    with pytest.raises(MeasurementError, match=words):
        call()
