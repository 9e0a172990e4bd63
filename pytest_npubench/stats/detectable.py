"""How large must a slowdown be before the gate sees it, and what would make that smaller?

The test of `margin_test` alarms where difference > margin + t_{1-level} e, with e = s sqrt(1/K + rho + (1 - rho)/R) the
error of the difference. A true effect of margin + delta e makes t a noncentral t with d degrees of freedom and
noncentrality delta, so the smallest one that is seen with the given power is

    effect = margin + delta e,      P(T_d(delta) > t_{1-level, d}) = power

(Johnson, Kotz & Balakrishnan 1995, Continuous Univariate Distributions 2, chapter 31). With many degrees of freedom
delta is z_{1-level} + z_power.

Worked number: margin 0.01, s = 0.01, K = 10 with 9 degrees of freedom, R = 1, level 0.05: delta = 2.697 (1.833 + 0.842
would be 2.675), 0.01 + 2.697 * 0.01049 = 0.0383. Slowdowns of 3.8 % are seen four times in five. Of that error's
square, 1/1.1 = 91 % is today's one night (its rho and its process): more baseline sessions cannot take it away.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pytest_npubench.stats.checks import FloatArray, finite, fraction, require
from pytest_npubench.stats.error import student_quantile
from pytest_npubench.stats.margin_test import predictive_variance

MANY_DEGREES = 1e6  # the noncentral t is then the normal distribution
FAR = 100.0


def minimum_detectable_effect(
    *,
    margin: npt.ArrayLike,
    standard_deviation: npt.ArrayLike,
    num_sessions: npt.ArrayLike,
    num_processes: npt.ArrayLike,
    night_share: npt.ArrayLike,
    degrees_of_freedom: npt.ArrayLike,
    level: float = 0.05,
    power: float = 0.8,
) -> FloatArray:
    """Smallest true difference of log latency that the test at `level` finds with `power`; arguments broadcast.

    Raises MeasurementError: a value not finite, a deviation below 0, counts, a share or degrees of freedom that cannot
    be; ConfigError for a level or power outside (0, 1).
    """
    deviation = finite("standard_deviation", standard_deviation)
    require("standard_deviation", deviation, deviation >= 0, "a number >= 0")
    freedom = np.asarray(degrees_of_freedom, dtype=np.float64)
    require("degrees_of_freedom", freedom, freedom > 0, "more than 0")
    noncentrality = _noncentrality(freedom, fraction("level", level), fraction("power", power))
    error = deviation * np.sqrt(predictive_variance(1.0, num_sessions, num_processes, night_share))
    return np.asarray(finite("margin", margin) + noncentrality * error)


def _noncentrality(freedom: FloatArray, level: float, power: float) -> FloatArray:
    """Returns the delta at which a noncentral t exceeds Student's quantile with the given power."""
    from scipy import special  # a quarter of a second that collecting cases need not pay

    critical = student_quantile(1 - level, freedom)
    many, far = freedom > MANY_DEGREES, critical > FAR
    usual = np.where(many | far, 1.0, freedom), np.where(many | far, 1.0, critical)
    delta = special.nctdtrinc(usual[0], 1 - power, usual[1])
    # so far out T is delta over the root of chi-square / d: its normal part is lost, and a series would take seconds
    by_spread = critical * np.sqrt(
        special.chdtri(np.where(many, 1.0, freedom), 1 - power) / np.where(many, 1.0, freedom)
    )
    return np.where(many, critical + special.ndtri(power), np.where(far, by_spread, delta))
