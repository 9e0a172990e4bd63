import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pytest_npubench.errors import ConfigError, MeasurementError
from pytest_npubench.stats.detectable import minimum_detectable_effect
from pytest_npubench.stats.margin_test import one_sided_p, predictive_variance

DESIGN = {
    "margin": 0.01,
    "standard_deviation": 0.01,
    "num_sessions": 10,
    "num_processes": 1,
    "night_share": 1.0,
    "degrees_of_freedom": 9,
}


def power_at(effect, *, num_sessions, num_processes, night_share, deviation, draws=40_000):
    """How often the gate's own test finds a true effect, with the variance estimated from the baseline sessions."""
    rng = np.random.default_rng(12)
    sessions = rng.normal(0, deviation, (draws, num_sessions))
    processes = rng.normal(0, deviation * math.sqrt(1 - night_share), (draws, num_processes)).mean(axis=1)
    tonight = effect + rng.normal(0, deviation * math.sqrt(night_share), draws) + processes
    error = np.sqrt(predictive_variance(sessions.var(axis=1, ddof=1), num_sessions, num_processes, night_share))
    p = one_sided_p(tonight - sessions.mean(axis=1), 0.01, error, num_sessions - 1)
    return float(np.mean(p < 0.05))


def test_worked_number():
    assert minimum_detectable_effect(**DESIGN) == pytest.approx(0.0383, abs=5e-5)


@pytest.mark.parametrize(
    ("num_sessions", "num_processes", "night_share"), [(10, 1, 1.0), (20, 3, 0.5), (10, 5, 0.0), (40, 2, 0.2)]
)
def test_power_by_simulation(num_sessions, num_processes, night_share):
    effect = minimum_detectable_effect(
        margin=0.01,
        standard_deviation=0.02,
        num_sessions=num_sessions,
        num_processes=num_processes,
        night_share=night_share,
        degrees_of_freedom=num_sessions - 1,
    )
    design = {"num_sessions": num_sessions, "num_processes": num_processes, "night_share": night_share}
    assert power_at(float(effect), **design, deviation=0.02) == pytest.approx(0.80, abs=0.03)
    assert power_at(0.01, **design, deviation=0.02) == pytest.approx(0.05, abs=0.006)


@pytest.mark.parametrize("level", [0.05, 0.01, 0.05 / 300, 1e-5])
@pytest.mark.parametrize("power", [0.5, 0.8, 0.95])
@pytest.mark.parametrize("freedom", [2, 4, 9, 30, 200, 5e3, math.inf])
def test_power_by_the_noncentral_t(freedom, level, power):
    """Of scipy's noncentral t; beyond 1e6 degrees of the normal."""
    effect = minimum_detectable_effect(**DESIGN | {"degrees_of_freedom": freedom}, level=level, power=power)
    shift = float(effect - 0.01) / (0.01 * math.sqrt(1.1))
    if math.isinf(freedom):
        assert stats.norm.sf(stats.norm.isf(level), shift) == pytest.approx(power)
    else:
        assert stats.nct.sf(stats.t.isf(level, freedom), freedom, shift) == pytest.approx(power, abs=1e-4)


def test_far_out_joins_the_series():
    """Where the critical value passes 100 another formula takes over: no step between them."""
    levels = [float(stats.t.sf(critical, 2)) for critical in (99.99, 100.01)]
    below, above = (minimum_detectable_effect(**DESIGN | {"degrees_of_freedom": 2}, level=level) for level in levels)
    assert 1 < float(above / below) < 1.0005


@given(st.floats(0.001, 0.1), st.integers(2, 50), st.integers(1, 10), st.floats(0, 1), st.floats(1, 100))
def test_monotone_and_beyond_the_margin(deviation, sessions, processes, share, freedom):
    design = {
        "margin": 0.01,
        "standard_deviation": deviation,
        "num_sessions": sessions,
        "num_processes": processes,
        "night_share": share,
        "degrees_of_freedom": freedom,
    }
    effect = minimum_detectable_effect(**design)
    assert effect > 0.01
    assert minimum_detectable_effect(**design | {"num_sessions": sessions + 1}) < effect
    assert minimum_detectable_effect(**design | {"num_processes": processes + 1}) <= effect * (1 + 1e-12)
    assert minimum_detectable_effect(**design | {"degrees_of_freedom": freedom + 1}) < effect
    assert minimum_detectable_effect(**design, power=0.9) > effect
    assert minimum_detectable_effect(**design, level=0.01) > effect


def test_no_noise_leaves_the_margin():
    assert minimum_detectable_effect(**DESIGN | {"standard_deviation": 0.0}) == 0.01


def test_one_for_each_case():
    effects = minimum_detectable_effect(**DESIGN | {"standard_deviation": [0.01, 0.02]})
    assert effects.tolist() == pytest.approx([0.03829, 0.06657], abs=1e-5)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"standard_deviation": -1.0}, MeasurementError, "standard_deviation: value 0 of 1 is -1.0"),
        ({"standard_deviation": math.nan}, MeasurementError, "standard_deviation: value 0 of 1 is nan"),
        ({"num_sessions": 0}, MeasurementError, "num_sessions: value 0 of 1 is 0.0"),
        ({"degrees_of_freedom": 0}, MeasurementError, "degrees_of_freedom: value 0 of 1 is 0.0"),
        ({"power": 1.0}, ConfigError, "power is 1.0"),
        ({"level": 5}, ConfigError, "level is 5"),
    ],
)
def test_designs_that_cannot_be(change, error, message):
    with pytest.raises(error, match=message):
        minimum_detectable_effect(**DESIGN | change)
