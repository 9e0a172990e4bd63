"""How wrong a prediction is, and how well a mean is known.

A case is a set of requests with predicted P and measured M seconds. Its error is signed, (sum P - sum M) / sum M; its
MAPE is the mean of |P - M| / M over requests. "Error of a case" has been used for either, so a gate takes the larger.

Worked number: P = (1.1, 1.8), M = (1.0, 2.0): sum error (2.9 - 3.0) / 3.0 = -0.0333, MAPE (0.1 + 0.1) / 2 = 0.1, gate
0.1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np
import numpy.typing as npt

from pytest_npubench.errors import MeasurementError
from pytest_npubench.stats.checks import FloatArray, fraction, row

MIN_JACKKNIFE_ROUNDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseError:
    """The error of one case: signed relative error of the sum and of each request, and the mean of the latter's
    absolute values."""

    sum_error: float
    errors: tuple[float, ...]

    @property
    def num_requests(self) -> int:
        return len(self.errors)

    @property
    def mape(self) -> float:
        return fmean(map(abs, self.errors))

    @property
    def gate_value(self) -> float:
        """Returns the stricter of the two: max(|sum_error|, mape)."""
        return max(abs(self.sum_error), self.mape)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorSummary:
    """Errors over cases, as fractions. All but signed_mean are of absolute values; p90 interpolates linearly."""

    num_cases: int
    signed_mean: float
    mean: float
    median: float
    p90: float
    max: float
    under_5_percent_fraction: float


def case_error(predicted_s: npt.ArrayLike, measured_s: npt.ArrayLike) -> CaseError:
    """Compare predicted with measured seconds, both of shape (num_requests,) or scalars.

    Raises MeasurementError: none, shapes that differ, a value that is not finite, a measured value that is not > 0.
    """
    predicted, measured = _values("predicted_s", predicted_s), _values("measured_s", measured_s)
    if predicted.shape != measured.shape:
        raise MeasurementError(f"{predicted.size} predicted and {measured.size} measured values; want as many of each")
    if measured.min() <= 0:
        index = int(measured.argmin())
        raise MeasurementError(f"measured_s: value {index} is {measured[index]}; want more than 0 seconds")
    return CaseError(
        sum_error=float(predicted.sum() / measured.sum() - 1.0),
        errors=tuple(((predicted - measured) / measured).tolist()),
    )


def summarise(signed_errors: Sequence[float]) -> ErrorSummary:
    """Summarise the signed errors of many cases. Raises MeasurementError when there is none or one is not finite."""
    signed = _values("signed_errors", signed_errors)
    absolute = np.abs(signed)
    return ErrorSummary(
        num_cases=signed.size,
        signed_mean=float(signed.mean()),
        mean=float(absolute.mean()),
        median=float(np.median(absolute)),
        p90=float(np.quantile(absolute, 0.9)),
        max=float(absolute.max()),
        under_5_percent_fraction=float(np.mean(absolute < 0.05)),
    )


def repeat_error(samples_s: Sequence[float]) -> float | None:
    """Relative standard error of the mean, s / (sqrt(n) mean); None below two samples, where it is unknown.

    Worked number: (9, 10, 11): s = 1, 1 / (sqrt(3) 10) = 0.0577. Raises MeasurementError: none, not finite, mean <= 0.
    """
    samples = _values("samples_s", samples_s)
    mean = float(samples.mean())
    if mean <= 0:
        raise MeasurementError(f"samples_s: the mean of {samples.size} samples is {mean}; want more than 0 seconds")
    if samples.size < 2:
        return None
    return float(samples.std(ddof=1)) / (math.sqrt(samples.size) * mean)


def jackknife_error(left_out: Sequence[float]) -> float:
    """Returns the standard error of an estimate from n rounds, by what it is with each of them left out (Tukey 1958):
    sqrt((n - 1) / n sum (x_i - mean)^2).

    Leaving out whole rounds keeps what interleaving achieved: drift that a round's points share cancels in a ratio of
    them, so it does not widen the interval.

    Worked number: the mean of (9, 10, 11) is 10.5, 10, 9.5 with one left out: sqrt(2 / 3 0.5) = 0.577 = 1 / sqrt(3).
    """
    return (len(left_out) - 1) / math.sqrt(len(left_out)) * stdev(left_out)


def jackknife_half_width(left_out: Sequence[float]) -> float | None:
    """Half the 95 % interval, with Student's quantile at n - 1 degrees of freedom; None below three rounds."""
    num = len(left_out)
    if num < MIN_JACKKNIFE_ROUNDS:
        return None
    return float(student_quantile(0.975, num - 1)) * jackknife_error(left_out)


def noise_in_gate(error: CaseError, left_out: Sequence[CaseError]) -> float:
    """How much of a case's gate value is noise: an absolute value grows by it, E e^2 = true^2 + s^2, and a mean of many
    absolute values does not lose that. So the gate value is compared with that of roots of max(0, e^2 - s^2).

    Worked number: two requests off by 0.05 and -0.05, whose errors are known to 0.03: the mean of |e| is 0.05, of which
    0.05 - sqrt(0.05^2 - 0.03^2) = 0.01 is noise; known to 0.06, all of it.
    """
    each = zip(*(one.errors for one in left_out), strict=True)
    requests = [_without_noise(own, without) for own, without in zip(error.errors, each, strict=True)]
    return error.gate_value - max(_without_noise(error.sum_error, [one.sum_error for one in left_out]), fmean(requests))


def _without_noise(error: float, left_out: Sequence[float]) -> float:
    return math.sqrt(max(0.0, error**2 - jackknife_error(left_out) ** 2))


def t_half_width(variances: FloatArray, degrees_of_freedom: FloatArray, coverage: float) -> FloatArray:
    """Half the width of a two-sided Student t interval for a sum of K independent estimates.

    `variances` has shape (K, ...), `degrees_of_freedom` shape (K,); the result has the shape of variances[0]. The sum's
    degrees of freedom are (sum v)^2 / sum(v^2 / nu) (Welch 1947, Satterthwaite 1946). Raises ConfigError for a coverage
    outside (0, 1).
    """
    fraction("coverage", coverage)
    total = variances.sum(axis=0)
    scale = np.where(total > 0, total, 1.0)  # shares of the total: squares of tiny variances would underflow
    inverse = np.tensordot(1.0 / degrees_of_freedom, (variances / scale) ** 2, axes=1)
    with np.errstate(divide="ignore"):  # where every estimate that has a variance is known exactly: the normal's
        freedom = 1.0 / np.where(total > 0, inverse, 1.0)
    return np.asarray(student_quantile(0.5 + coverage / 2, freedom) * np.sqrt(total))


def student_quantile(level: float, degrees_of_freedom: FloatArray | float) -> FloatArray:
    """Student's t at a level such as 0.975, in the shape of degrees_of_freedom; infinite ones give the normal's."""
    from scipy import special  # a quarter of a second that collecting cases need not pay

    infinite = np.isinf(degrees_of_freedom)
    finite_freedom = np.where(infinite, 1.0, degrees_of_freedom)
    return np.where(infinite, special.ndtri(level), special.stdtrit(finite_freedom, level))


def _values(name: str, values: npt.ArrayLike) -> FloatArray:
    return row(name, np.atleast_1d(np.asarray(values, dtype=np.float64)).ravel())
