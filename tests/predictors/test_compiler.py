"""The compiler as a rival: its estimates through LENS's equations, against sums by hand."""

import pytest

from pytest_npubench.core.measurement import CacheState, CompileRecord, Request
from pytest_npubench.errors import MeasurementError
from pytest_npubench.predictors import predictor
from pytest_npubench.predictors.profile import BucketProfile, BucketTiming
from pytest_npubench.predictors.protocol import ProfileSamples
from pytest_npubench.predictors.two_point import ProfilePoint

POINT = ProfilePoint(bucket=128, input_tokens=95, output_tokens=33)
COMPILES = tuple(CompileRecord(name=f"{x}-128", compile_s=1.5, cache=CacheState.COLD) for x in ("prefill", "decode"))
TIMES = {128: BucketTiming(ttft_s=0.010, tbt_s=0.002), 256: BucketTiming(ttft_s=0.018, tbt_s=0.003)}


def samples(measured_s: float, estimates: BucketProfile | None) -> ProfileSamples:
    return ProfileSamples(
        samples_s={POINT: (measured_s,)}, batch_size=1, finished="freeze", compiles=COMPILES, estimates=estimates
    )


@pytest.mark.parametrize("measured_s", [0.074, 740.0])
def test_what_was_measured_is_not_looked_at(measured_s):
    """The module's example, and 28 steps in 128, a move and 31 steps in 256."""
    estimates = BucketProfile(buckets=TIMES, transitions_s={256: 0.004})
    fitted = predictor("compiler").fit(samples(measured_s, estimates))
    assert fitted.predict((Request(input_tokens=95, output_tokens=33),)) == pytest.approx(0.074)
    assert fitted.predict((Request(input_tokens=100, output_tokens=60),)) == pytest.approx(0.159 + 0.004)


def test_its_cost_is_compiling_alone():
    cost = predictor("compiler").cost(samples(9.0, None))
    assert (cost.binaries, cost.compile_s, cost.points, cost.measure_s, cost.total_s) == (2, 3.0, 0, 0.0, 3.0)


def test_without_estimates_it_says_why():
    with pytest.raises(MeasurementError, match=r"^unavailable: no compiler's estimates are on record here$"):
        predictor("compiler").fit(samples(0.1, None))
    assert predictor("compiler").basis == "compiled, not run"
