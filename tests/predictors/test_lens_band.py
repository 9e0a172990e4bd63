import numpy as np
import pytest

from pytest_npubench.errors import ConfigError, MeasurementError
from pytest_npubench.predictors.lens import BucketProfile, BucketTiming, LensPredictor
from pytest_npubench.predictors.profile import PointError
from pytest_npubench.predictors.two_point import fit, plan_points

TTFT_S, TBT_S = {8: 1.0, 16: 1.5, 64: 4.0}, {8: 0.10, 16: 0.12, 64: 0.30}


def noisy_profile(rng, num_rounds, batch_size=1, literal=False):
    """Samples of a table with 2 % noise, from a stated generator: nothing here is measured."""
    samples = {}
    for point in plan_points(tuple(TTFT_S), output_tokens=20):
        steps = point.output_tokens - (not literal)
        e2e_s = batch_size * TTFT_S[point.bucket] + steps * TBT_S[point.bucket]
        samples[point] = rng.normal(e2e_s, 0.02 * e2e_s, num_rounds)
    return fit(samples, batch_size, literal=literal)


TRUTH = BucketProfile(buckets={b: BucketTiming(ttft_s=TTFT_S[b], tbt_s=TBT_S[b]) for b in TTFT_S}, batch_size=4)


@pytest.mark.parametrize(
    ("request_", "literal"), [((3, 4), False), ((3, 40), False), ((20, 30), False), ((3, 40), True)]
)
@pytest.mark.parametrize("coverage", [0.5, 0.9])
def test_the_band_covers_what_it_says(request_, literal, coverage):
    rng = np.random.default_rng(3)
    true_s = LensPredictor(TRUTH, literal=literal).predict(*request_).e2e_s
    num_covered = 0
    for _ in range(600):
        band = LensPredictor(noisy_profile(rng, 6, literal=literal), literal=literal).band(*request_, coverage=coverage)
        num_covered += band.low_s <= true_s <= band.high_s
    spread = (coverage * (1 - coverage) / 600) ** 0.5
    assert num_covered / 600 == pytest.approx(coverage, abs=4 * spread)


@pytest.mark.parametrize("words", [{}, {"finished": "drop"}, {"attention": "ragged"}])
def test_the_band_of_a_batch_covers_what_it_says(words):
    rng, batch = np.random.default_rng(4), [(3, 40), (20, 9), (9, 5)]
    true_s = LensPredictor(TRUTH).predict_batch(batch, **words).e2e_s
    num_covered = 0
    for _ in range(600):
        band = LensPredictor(noisy_profile(rng, 6, batch_size=4)).band_batch(batch, **words)
        num_covered += band.low_s <= true_s <= band.high_s
    assert num_covered / 600 == pytest.approx(0.9, abs=0.05)


def test_covariance_worked_number():
    """Var(E1) = Var(E2) = 1: with one prefill and 16 of 32 steps the prediction is (E1 + E2) / 2, of variance 0.5."""
    errors = tuple(
        PointError(variance_s2=1.0, num_samples=10**9, ttft_weight=ttft_weight, tbt_weight=tbt_weight)
        for ttft_weight, tbt_weight in ((1.0, -1 / 32), (0.0, 1 / 32))
    )
    profile = BucketProfile(buckets={128: BucketTiming(ttft_s=10.0, tbt_s=1.0, errors=errors)})
    band = LensPredictor(profile).band(64, 17, coverage=0.95)
    assert (band.low_s, band.high_s) == pytest.approx((26 - 1.95996 * 0.5**0.5, 26 + 1.95996 * 0.5**0.5), rel=1e-5)
    assert band.coverage == 0.95


def test_arrays_equal_one_by_one():
    predictor = LensPredictor(noisy_profile(np.random.default_rng(5), 6))
    inputs, outputs = np.array([[1, 8], [30, 64]]), np.array([[1, 20], [30, 1]])
    bands = predictor.band(inputs, outputs)
    assert bands.low_s.shape == (2, 2)
    for index in np.ndindex(2, 2):
        alone = predictor.band(int(inputs[index]), int(outputs[index]))
        assert (bands.low_s[index], bands.high_s[index]) == pytest.approx((alone.low_s, alone.high_s), rel=1e-12)


def test_a_batch_of_one_has_the_band_of_its_request():
    predictor = LensPredictor(noisy_profile(np.random.default_rng(6), 6))
    alone, batch = predictor.band(9, 20), predictor.band_batch([(9, 20)])
    assert (batch.low_s, batch.high_s) == pytest.approx((alone.low_s, alone.high_s), rel=1e-12)


def test_samples_without_spread_give_a_band_without_width():
    points = plan_points((64,))
    predictor = LensPredictor(fit({points[0]: [1.0, 1.0], points[1]: [2.0, 2.0]}))
    band = predictor.band(5, 9)
    assert band.low_s == band.high_s == predictor.predict(5, 9).e2e_s


def test_bands_that_cannot_be():
    one_round = noisy_profile(np.random.default_rng(7), 1)
    with pytest.raises(MeasurementError, match="bucket 16: its error is unknown; fit it from at least 2 rounds"):
        LensPredictor(one_round).band(10, 2)
    for coverage in (0.0, 1.0, 90, float("nan")):
        with pytest.raises(ConfigError, match=r"coverage is .*; want a fraction"):
            LensPredictor(noisy_profile(np.random.default_rng(7), 2)).band(10, 2, coverage=coverage)
