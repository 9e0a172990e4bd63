"""INT8 with outliers: numbers against float64 by hand, the factor of ten over seeds, and input that cannot be used."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_npubench.engines.outliers import OutlierCase, activation, weight
from pytest_npubench.engines.quantization import (
    ActivationCalibration,
    calibrate,
    int8_product,
    max_min_scale,
    quantize,
    relative_error,
    residual,
)
from pytest_npubench.errors import ConfigError, MeasurementError

from .shadow_product import shadow_product


def case(num_outliers: int = 8, seed: int = 0, **sizes: int) -> OutlierCase:
    known = {"num_tokens": 64, "num_channels": 512, "num_rows": 64, **sizes}
    return OutlierCase(num_outliers=num_outliers, seed=seed, **known)


def errors(one: OutlierCase) -> tuple[float, float, float]:
    """max_min, clip, shadow, calibrated on another batch."""
    x, w = activation(one), weight(one)
    known = calibrate(activation(one, batch=1), one.num_outliers)
    exact = x.astype(np.float64) @ w.astype(np.float64)
    products = (int8_product(x, w, max_min_scale(x)), int8_product(x, w, known.scale), shadow_product(x, w, known))
    found = [np.linalg.norm(y - exact) / np.linalg.norm(exact) for y in products]
    return float(found[0]), float(found[1]), float(found[2])


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6))
def test_shadow_is_ten_times_better_than_max_min(seed: int) -> None:
    """With 8 outlier channels of 2048; with fewer or smaller ones max_min has less to lose (2 of 1024: 9.6 times)."""
    max_min, clip, shadow = errors(case(8, seed, num_tokens=256, num_channels=2048, num_rows=32))
    assert shadow * 10 <= max_min
    assert max_min < clip


def test_the_worked_numbers_at_full_size() -> None:
    sizes = {"num_tokens": 256, "num_channels": 2048, "num_rows": 512}
    found = np.mean([errors(case(seed=seed, **sizes)) for seed in range(4)], axis=0)
    assert found[0] == pytest.approx(0.148, abs=0.002)
    assert found[1] == pytest.approx(0.863, abs=0.002)
    assert found[2] == pytest.approx(0.0056, abs=0.0002)


def test_the_worked_number_of_the_module() -> None:
    x = np.array([[1.0, 100.0]], dtype=np.float32)
    known = calibrate(x, 1)
    assert known == ActivationCalibration(scale=1 / 127, hot_channels=(1,))
    assert quantize(x, known.scale).tolist() == [[127, 127]]
    assert residual(x, known)[0] == pytest.approx([0, 99])
    assert quantize(x, max_min_scale(x)).tolist() == [[1, 127]]
    assert (quantize(x, max_min_scale(x)) * max_min_scale(x))[0] == pytest.approx([0.787, 100], abs=1e-3)


def test_a_product_by_hand() -> None:
    """x = (2, -127), scale 1; w = (1, 0.5)T has scale 1/127, levels (127, 64): (2 * 127 - 127 * 64) / 127 = -62."""
    product = int8_product(np.array([[2, -127]], np.float32), np.array([[1], [0.5]], np.float32), 1.0)
    assert product[0, 0] == pytest.approx(-62)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.floats(1e-3, 1e3))
def test_clamp_and_residual_are_the_whole(seed: int, scale: float) -> None:
    x = np.random.default_rng(seed).normal(0, 100, (5, 7)).astype(np.float32)
    known = ActivationCalibration(scale=scale, hot_channels=())
    clamped = np.clip(x, -known.limit, known.limit)
    assert clamped + residual(x, known) == pytest.approx(x, rel=1e-6)
    assert np.abs(quantize(x, scale)).max() <= 127


def test_no_outliers_and_only_outliers() -> None:
    x, w = activation(case(0)), weight(case(0))
    known = calibrate(x, 0)
    assert known.scale == pytest.approx(max_min_scale(x))
    assert not residual(x, known).any()
    assert shadow_product(x, w, known) == pytest.approx(int8_product(x, w, max_min_scale(x)))
    full = case(512)
    x = activation(full)
    known = calibrate(x, 512)
    assert len(known.hot_channels) == 512
    assert known.scale > 0
    assert relative_error(shadow_product(x, w, known), x @ w) < 0.02


def test_a_tensor_of_zeros() -> None:
    zeros = np.zeros((3, 4), np.float32)
    known = calibrate(zeros, 4)
    assert not shadow_product(zeros, np.ones((4, 2), np.float32), known).any()
    assert relative_error(zeros, zeros) == 0


def test_named_channels_alone_are_added() -> None:
    one = case(4)
    x, w = activation(one), weight(one)
    known = calibrate(x, 4)
    none = shadow_product(x, w, known, ())
    assert none == pytest.approx(int8_product(x, w, known.scale))
    assert shadow_product(x, w, known, known.hot_channels) == pytest.approx(shadow_product(x, w, known))


def test_what_cannot_be_used_is_named() -> None:
    x = np.ones((2, 3), np.float32)
    x[1, 2] = np.nan
    with pytest.raises(MeasurementError, match=r"x\[1, 2\] is nan; 1 of 6 are not finite"):
        max_min_scale(x)
    with pytest.raises(MeasurementError, match=r"profile\[1, 2\]"):
        calibrate(x, 1)
    with pytest.raises(MeasurementError, match=r"output\[1, 2\]"):
        relative_error(x, np.ones((2, 3), np.float32))
    with pytest.raises(MeasurementError, match="is empty"):
        max_min_scale(np.ones((0, 3), np.float32))
    with pytest.raises(ConfigError, match="4 hot channels of 3"):
        calibrate(np.ones((2, 3), np.float32), 4)
    with pytest.raises(MeasurementError, match="against a reference of"):
        relative_error(np.ones((2, 3), np.float32), np.ones((3, 2), np.float32))
    with pytest.raises(MeasurementError, match="zero everywhere"):
        relative_error(np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32))
    with pytest.raises(ConfigError, match="513 outlier channels of 512"):
        case(513)
    with pytest.raises(ConfigError, match="num_tokens is 0"):
        case(num_tokens=0)


def test_activations_have_their_outliers_where_they_say() -> None:
    one = case(8)
    sizes = activation(one).std(axis=0)
    assert set(np.flatnonzero(sizes > 5)) == set(one.hot_channels)
    assert set(calibrate(activation(one, batch=1), 8).hot_channels) == set(one.hot_channels)
    assert np.array_equal(activation(one), activation(one))
    assert not np.array_equal(activation(one), activation(one, batch=1))
