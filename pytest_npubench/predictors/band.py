"""What a predictor returns, and the interval of a LENS prediction: of the repeats of the two-point measurement.

A prediction is linear in the measured E2E values: with p_b prefills and n_b steps in bucket b, the value E_k of a point
of b enters with a_k = p_b dTTFT_b/dE_k + n_b dTBT_b/dE_k, so the variance is sum_k a_k^2 Var(E_k). TTFT_b and TBT_b
come from the same two values and are correlated; a_k holds both, so their covariance needs no term of its own.

Worked number: T1 = 0 and T2 = 32 steps, N = 1, Var(E_1) = Var(E_2) = 1 ms^2, a request with one prefill and 16 steps
there: a_1 = 1 - 16/32 = 0.5, a_2 = 16/32 = 0.5, variance 0.5 ms^2. Without the covariance it would come to 1.5 ms^2.

What it leaves out: drift that all points share, transitions, and what LENS itself does not model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from pytest_npubench.errors import MeasurementError
from pytest_npubench.predictors.profile import BucketTiming, PointError
from pytest_npubench.predictors.work import BucketWork, FloatArray
from pytest_npubench.stats.error import t_half_width

Seconds = TypeVar("Seconds", float, npt.NDArray[np.float64])


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction(Generic[Seconds]):
    """Predicted latency in seconds: floats for one request or batch, arrays of one shape for many requests.

    e2e_s = prefill_s + decode_s (LENS, Eq. 6 and 11).
    """

    prefill_s: Seconds
    decode_s: Seconds

    @property
    def e2e_s(self) -> Seconds:
        return self.prefill_s + self.decode_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Band(Generic[Seconds]):
    """Two-sided interval of the expected E2E latency in seconds: floats or arrays, like the prediction."""

    low_s: Seconds
    high_s: Seconds
    coverage: float


def half_width_s(timings: Mapping[int, BucketTiming], work: BucketWork, coverage: float) -> FloatArray:
    """Half the width of the band, in the shape of the work's arrays.

    Raises MeasurementError where the work uses a bucket whose timing has no errors, ConfigError for a coverage outside
    (0, 1).
    """
    weights = influences(timings, work)
    variances = np.stack([np.asarray(influence**2 * error.variance_s2) for influence, error in weights.values()])
    degrees_of_freedom = np.array([error.num_samples - 1 for _, error in weights.values()], dtype=np.float64)
    return t_half_width(variances, degrees_of_freedom, coverage)


def influences(
    timings: Mapping[int, BucketTiming], work: BucketWork
) -> dict[tuple[int, int], tuple[FloatArray, PointError]]:
    """a_k of every point that the work rests on, by bucket and place in it. Raises MeasurementError where one has no
    errors."""
    weights = {}
    for bucket in sorted(work.prefills.keys() | work.steps.keys()):
        prefills, steps = work.prefills.get(bucket, np.zeros(())), work.steps.get(bucket, np.zeros(()))
        if not timings[bucket].errors and (prefills.any() or steps.any()):
            raise MeasurementError(f"bucket {bucket}: its error is unknown; fit it from at least 2 rounds of samples")
        for index, error in enumerate(timings[bucket].errors):
            weights[bucket, index] = (prefills * error.ttft_weight + steps * error.tbt_weight, error)
    return weights
