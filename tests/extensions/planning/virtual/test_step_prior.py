"""Known costs found again without peaks, and windows that do not tell them refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.engines.shapes import decoder_shape
from pytest_npubench.errors import ConfigError
from pytest_npubench.extensions.planning.virtual.calibrated import CalibratedCost, worth
from pytest_npubench.extensions.planning.virtual.step_calibration import StepSamples, calibrate_steps, samples_of
from pytest_npubench.extensions.planning.virtual.step_prior import LEAST_FROM_IDLE, prior_of_steps
from pytest_npubench.serving.log import IterationLog

DENSE, MOE = decoder_shape("small-dense"), decoder_shape("small-moe")
LINE = CalibratedCost(num_layers=8, fixed_s=3.3e-3, row_s=0.137e-3, context_s=1e-6)
KINKED = CalibratedCost(num_layers=8, fixed_s=1e-3, weights_s=8e-3, row_s=0.1e-3, context_s=1e-6)
EXPERTS = CalibratedCost(
    num_layers=8, fixed_s=2e-3, row_s=0.05e-3, context_s=1e-6, activation_s=0.1e-3, has_experts=True
)
NUM_ITERATIONS = 400


def window(cost: CalibratedCost, *, rows: tuple[int, int] = (1, 300), noise: float = 0.03) -> StepSamples:
    """Iterations of a device that takes what the cost says, give or take."""
    random = np.random.default_rng(0)
    every = random.integers(*rows, NUM_ITERATIONS, endpoint=True).astype(float)
    decode = np.minimum(every, random.integers(0, 20, NUM_ITERATIONS))
    samples = StepSamples(
        seconds=np.ones(NUM_ITERATIONS),
        decode=decode,
        prompt=every - decode,
        pairs=(every - decode) * random.integers(1, 2000, NUM_ITERATIONS),
        share=np.where(every > decode, 1.0, 0.0),
        context=decode * random.integers(50, 500, NUM_ITERATIONS),
        activations=8 * 32 * (1 - np.exp(-every / 20 * random.uniform(0.5, 1.5, NUM_ITERATIONS))),
        from_idle=np.where(decode == 0, 1.0, 0.0),
    )
    seconds = samples.predicted(cost) * np.exp(random.normal(0.0, noise, NUM_ITERATIONS))
    return replace(samples, seconds=seconds)


@pytest.mark.parametrize("cost", [LINE, KINKED, EXPERTS], ids=["line", "kink", "experts"])
def test_a_known_cost_is_found_without_peaks(cost: CalibratedCost) -> None:
    shape, samples = (MOE if cost.has_experts else DENSE), window(cost)
    found = calibrate_steps(shape, prior_of_steps(shape, samples), samples).best
    assert found.row_s == pytest.approx(cost.row_s, rel=0.05)
    assert found.activation_s == pytest.approx(cost.activation_s, rel=0.05)
    assert found.fixed_s + found.weights_s == pytest.approx(cost.fixed_s + cost.weights_s, rel=0.1)
    assert not found.curve
    if not cost.has_experts:
        assert (found.weights_s > 0) is (cost.weights_s > 0)
    other = window(cost, rows=(20, 200), noise=0.0)
    np.testing.assert_allclose(other.predicted(found), other.seconds, rtol=0.05)


CURVE = ((0.0, 0.0), (100.0, 60.0), (300.0, 400.0))


@pytest.mark.parametrize("cost", [LINE, EXPERTS], ids=["dense", "experts"])
def test_many_rows_may_take_longer_each_than_few_and_prompts_look_back(cost: CalibratedCost) -> None:
    real = replace(cost, curve=CURVE, pair_s=0.5e-7)
    shape, samples = (MOE if cost.has_experts else DENSE), window(real)
    found = calibrate_steps(shape, prior_of_steps(shape, samples), samples).best
    assert found.pair_s == pytest.approx(real.pair_s, rel=0.05)
    assert found.curve
    other = window(real, rows=(20, 200), noise=0.0)
    off = np.abs(other.predicted(found) / other.seconds - 1)  # a bend lies where it lies, a stretch ends elsewhere
    assert off.mean() < 0.03
    assert off.max() < 0.15


def test_pairs_that_nothing_tells_from_rows_stay_in_the_rows() -> None:
    samples = window(LINE)
    samples = replace(samples, pairs=100 * samples.rows(), share=np.ones(NUM_ITERATIONS))
    found = calibrate_steps(DENSE, prior_of_steps(DENSE, samples), samples).best
    assert found.pair_s == 0.0
    assert found.row_s == pytest.approx(LINE.row_s, rel=0.05)


@pytest.mark.parametrize("cost", [LINE, KINKED, EXPERTS], ids=["line", "kink", "experts"])
def test_what_waking_takes_is_told_from_what_every_iteration_takes(cost: CalibratedCost) -> None:
    shape, samples = (MOE if cost.has_experts else DENSE), window(replace(cost, waking_s=20e-3))
    assert samples.from_idle.sum() > LEAST_FROM_IDLE
    found = calibrate_steps(shape, prior_of_steps(shape, samples), samples).best
    assert found.waking_s == pytest.approx(20e-3, rel=0.05)
    assert found.fixed_s + found.weights_s == pytest.approx(cost.fixed_s + cost.weights_s, rel=0.1)
    asleep = window(cost)
    without = calibrate_steps(shape, prior_of_steps(shape, asleep), asleep).best
    assert without.waking_s < 0.05 * asleep.seconds.mean()


def test_an_iteration_from_idle_begins_when_its_request_comes() -> None:
    """Requests at 0.5 and 0.98 s that a policy waits for, at 1.95 s, and one at 2.05 s that joins; the loop's own gap
    of 1 ms counts as ever."""
    log = IterationLog()
    columns = {
        "start_s": [1.0, 1.101, 2.0, 2.1],
        "end_s": [1.1, 1.121, 2.1, 2.2],
        "num_decode": [0, 1, 0, 1],
        "num_prefill_tokens": [50, 0, 50, 50],
        "num_prefill_layers": [8, 0, 8, 8],
        "kv_bytes": [50, 51, 50, 101],
    }
    log.extend({name: columns.get(name, [0] * 4) for name in log.columns() if name != "energy_j"})
    samples = samples_of(log, DENSE, kv_token_bytes=1.0, arrivals_s=[2.05, 0.98, 0.5, 1.95])
    np.testing.assert_allclose(samples.seconds, [0.12, 0.021, 0.15, 0.1])
    assert samples.from_idle.tolist() == [1, 0, 1, 0]
    without = samples_of(log, DENSE, kv_token_bytes=1.0)
    np.testing.assert_allclose(without.seconds, [0.1, 0.021, 0.1, 0.1])


def test_a_few_slow_starts_are_no_waking() -> None:
    samples = window(LINE)
    few = np.zeros(NUM_ITERATIONS)
    few[: LEAST_FROM_IDLE - 1] = 1.0
    samples = replace(samples, from_idle=few, seconds=samples.seconds + 20e-3 * few)
    found = calibrate_steps(DENSE, prior_of_steps(DENSE, samples), samples).best
    assert found.waking_s == 0.0
    assert found.row_s == pytest.approx(LINE.row_s, rel=0.1)


@given(st.lists(st.tuples(st.floats(0.5, 500), st.floats(0, 500)), min_size=1, max_size=6), st.floats(0, 5000))
def test_what_rows_are_worth_is_straight_between_points_and_on(steps: list[tuple[float, float]], rows: float) -> None:
    """Against numpy's interpolation, with the last slope carried on by one point more."""
    ends = np.concatenate([np.zeros((1, 2)), np.cumsum(steps, axis=0)])
    on = ends[-1] + 20 * (ends[-1] - ends[-2]) * 500
    curve = tuple((float(low), float(high)) for low, high in ends)
    expected = np.interp(rows, [*ends[:, 0], on[0]], [*ends[:, 1], on[1]])
    assert worth(curve, rows) == pytest.approx(expected, rel=1e-6, abs=1e-6)
    sample = replace(window(LINE), decode=np.full(NUM_ITERATIONS, rows), share=np.zeros(NUM_ITERATIONS))
    assert sample.rows(curve)[0] == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_a_tenth_of_iterations_that_hang_do_not_count_for_more() -> None:
    samples = window(LINE)
    samples.seconds[::10] *= 30
    found = calibrate_steps(DENSE, prior_of_steps(DENSE, samples), samples).best
    assert found.row_s == pytest.approx(LINE.row_s, rel=0.1)
    assert found.fixed_s == pytest.approx(LINE.fixed_s, rel=0.15)


def test_units_of_time_do_not_matter() -> None:
    """No peak says how fast the device is: a thousand times slower is found as well."""
    samples = window(LINE)
    samples = replace(samples, seconds=1000 * samples.seconds)
    found = calibrate_steps(DENSE, prior_of_steps(DENSE, samples), samples).best
    assert found.row_s == pytest.approx(1000 * LINE.row_s, rel=0.05)


def test_iterations_of_equal_batches_tell_no_rows() -> None:
    with pytest.raises(ConfigError, match=r"these iterations do not tell (rows|the fixed part) from the rest"):
        prior_of_steps(DENSE, window(LINE, rows=(32, 32)))


def test_what_decodes_nothing_is_refused() -> None:
    samples = window(LINE)
    samples.context[:] = 0.0
    with pytest.raises(ConfigError, match="no iteration decoded"):
        prior_of_steps(DENSE, samples)
