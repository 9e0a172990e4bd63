"""The shadow experiment: what its graphs compute, against numpy's INT8 and float64; the crossover by hand."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from engines.shadow_product import shadow_product

from pytest_npubench.engines.outliers import activation, weight
from pytest_npubench.engines.quantization import calibrate, int8_product, max_min_scale
from pytest_npubench.errors import ConfigError, RegistryError
from pytest_npubench.extensions.pairs.offload.shadow import (
    ARMS,
    ShadowBench,
    ShadowSettings,
    crossover,
    sync_fraction,
)
from pytest_npubench.extensions.pairs.offload.units import Units
from pytest_npubench.extensions.pairs.partition.units.arena import SharedArena

from .in_process import InProcessUnit

SETTINGS = ShadowSettings(num_tokens=8, num_channels=64, num_rows=32, num_outliers=(0, 4, 64))


@pytest.fixture(scope="module")
def bench() -> Iterator[ShadowBench]:
    arena = SharedArena()
    made = ShadowBench(SETTINGS, Units(arena, InProcessUnit(arena, ShadowBench.KERNELS)))
    made.load()
    yield made
    arena.close()


def test_every_arm_computes_what_it_says(bench: ShadowBench) -> None:
    for count in SETTINGS.num_outliers:
        case = SETTINGS.case(count)
        x, w = activation(case), weight(case)
        known = calibrate(activation(case, batch=1), count)
        shadow = shadow_product(x, w, known)
        expected = dict.fromkeys(ARMS, shadow)
        expected["fp32"] = (x.astype(np.float64) @ w).astype(np.float32)
        expected["max_min"] = int8_product(x, w, max_min_scale(x))
        expected["clip"] = int8_product(x, w, known.scale)
        expected["mixed"] = shadow_product(x, w, known, known.hot_channels)
        for arm in ARMS:
            figures = bench.measure(f"shadow/{arm}/{count} outliers")
            output = bench._units.arena.view(f"{count}/y")
            assert output == pytest.approx(expected[arm], rel=1e-4, abs=1e-3 * float(np.abs(expected[arm]).max())), arm
            off = np.linalg.norm(output - expected["fp32"]) / np.linalg.norm(expected["fp32"])
            assert figures.relative_error == pytest.approx(float(off), rel=1e-3, abs=1e-6)


def test_outliers_are_counted_in_what_is_run(bench: ShadowBench) -> None:
    assert bench.measure("shadow/serial/64 outliers").num_outlier_channels >= 60
    assert 4 <= bench.measure("shadow/parallel_slow/4 outliers").num_outlier_channels <= 8
    assert bench.measure("shadow/clip/4 outliers").dynamic_s == 0


def test_points_are_every_arm_at_every_number() -> None:
    names = [point.name for point in SETTINGS.points()]
    assert len(set(names)) == len(names) == 21
    assert "shadow/mixed/64 outliers" in names


def test_an_unknown_point_is_named(bench: ShadowBench) -> None:
    with pytest.raises(RegistryError, match="no point 'shadow/fp32/5 outliers'; points: shadow/fp32/0 outliers"):
        bench.measure("shadow/fp32/5 outliers")


def test_sync_fraction_by_hand() -> None:
    assert sync_fraction(5.0, 4.0, 1.5) == pytest.approx(0.2)
    assert sync_fraction(5.0, 3.0, 1.5, serial=True) == pytest.approx(0.1)
    with pytest.raises(ConfigError, match="total_s is 0"):
        sync_fraction(0.0, 0.0, 0.0)


def test_crossover_by_hand() -> None:
    assert crossover((0.0, 0.5), (1, 3), (2, 2)) == pytest.approx(0.25)
    assert crossover((0.0, 0.5, 1.0), (1, 3, 1), (2, 2, 2)) is None
    assert crossover((0.1, 0.5), (3, 3), (2, 2)) == 0.1
    assert crossover((0.0, 0.2, 0.4, 0.8), (3, 1, 1, 3), (2, 2, 2, 2)) == pytest.approx(0.6)
    for shares, pair in (((), ()), ((0.1,), (1, 2)), ((0.2, 0.1), (1, 2))):
        with pytest.raises(ConfigError, match="shares"):
            crossover(shares, pair, (1,) * len(shares))


@pytest.mark.parametrize(
    ("outliers", "words"), [((), "want one or more"), ((4, 4), "none twice"), ((65,), "65 outlier channels of 64")]
)
def test_settings_that_cannot_be_used_are_named(outliers: tuple[int, ...], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ShadowSettings(num_channels=64, num_outliers=outliers)
