"""Is a case slower by more than a margin that nobody minds, given how nights and processes differ?

The unit is the median log latency of one process, so a difference of 0.01 is 1 %. With baseline variance s^2 between
sessions, a difference (current - mean of K sessions) varies by

    s^2 (1 / K + rho + (1 - rho) / R)

where rho is the share of s^2 that a night gives to all its processes alike and R the processes measured today: more
processes never average out the night. With R = 1 this is the predictive variance s^2 (1 + 1 / K) of one new
observation. The test is one-sided Student t (Student 1908):

    p = P(T_d >= (difference - margin) / standard error)        H0: difference <= margin

Worked number: difference 0.05, margin 0.01, s = 0.01, K = 10, R = 1: standard error 0.01 sqrt(1.1) = 0.01049,
t = 3.814; with 9 degrees of freedom p = 0.0021.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pytest_npubench.stats.checks import FloatArray, finite, fraction, require
from pytest_npubench.stats.error import student_quantile


def one_sided_p(
    difference: npt.ArrayLike,
    margin: npt.ArrayLike,
    standard_error: npt.ArrayLike,
    degrees_of_freedom: npt.ArrayLike,
) -> FloatArray:
    """P(T >= (difference - margin) / standard_error); arguments broadcast, degrees of freedom may be infinite.

    Without any error (standard_error 0) p is 0 where the difference exceeds the margin and 1 where it does not. Raises
    MeasurementError: a value that is not finite, an error below 0, degrees of freedom of 0 or less.
    """
    excess = np.subtract(finite("difference", difference), finite("margin", margin))
    error, freedom = _error_and_freedom(standard_error, degrees_of_freedom)
    with np.errstate(over="ignore"):  # an excess of any size over a tiny error is infinitely many errors
        t = np.divide(excess, np.where(error > 0, error, 1.0))
    exact = np.where(excess > 0, 0.0, 1.0)
    return np.where(error > 0, _upper_tail(t, freedom), exact)


def interval(
    difference: npt.ArrayLike,
    standard_error: npt.ArrayLike,
    degrees_of_freedom: npt.ArrayLike,
    coverage: float = 0.95,
) -> tuple[FloatArray, FloatArray]:
    """Two-sided Student t interval (low, high) of each difference; arguments broadcast.

    Raises MeasurementError as `one_sided_p`, ConfigError for a coverage outside (0, 1).
    """
    centre = finite("difference", difference)
    error, freedom = _error_and_freedom(standard_error, degrees_of_freedom)
    half_width = student_quantile(0.5 + fraction("coverage", coverage) / 2, freedom) * error
    return centre - half_width, centre + half_width


def predictive_variance(
    variance: npt.ArrayLike,
    num_sessions: npt.ArrayLike,
    num_processes: npt.ArrayLike = 1,
    night_share: npt.ArrayLike = 1.0,
) -> FloatArray:
    """Variance of (mean of num_processes of one new night - mean of num_sessions); arguments broadcast.

    night_share is the fraction of `variance` that all processes of a night have in common. At its default 1, further
    processes tell nothing new: the cautious answer where the share is unknown. Raises MeasurementError: a variance
    below 0 or not finite, counts below 1, a share outside [0, 1].
    """
    s2, sessions = finite("variance", variance), finite("num_sessions", num_sessions)
    processes, share = finite("num_processes", num_processes), finite("night_share", night_share)
    require("variance", s2, s2 >= 0, "a number >= 0")
    require("num_sessions", sessions, sessions >= 1, "at least 1")
    require("num_processes", processes, processes >= 1, "at least 1")
    require("night_share", share, (share >= 0) & (share <= 1), "a fraction from 0 to 1")
    return np.asarray(s2 * (1 / sessions + share + (1 - share) / processes))


def _upper_tail(t: FloatArray, freedom: FloatArray) -> FloatArray:
    from scipy import special  # a quarter of a second that collecting cases need not pay

    infinite = np.isinf(freedom)
    return np.where(infinite, special.ndtr(-t), special.stdtr(np.where(infinite, 1.0, freedom), -t))


def _error_and_freedom(
    standard_error: npt.ArrayLike, degrees_of_freedom: npt.ArrayLike
) -> tuple[FloatArray, FloatArray]:
    error = finite("standard_error", standard_error)
    require("standard_error", error, error >= 0, "a number >= 0")
    freedom = np.asarray(degrees_of_freedom, dtype=np.float64)
    return error, require("degrees_of_freedom", freedom, freedom > 0, "more than 0")
