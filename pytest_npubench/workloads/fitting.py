"""The smoothest quantile curve that meets published statistics.

Over the normal score z the log length of a lognormal distribution is a straight line, and token counts are close to
lognormal. So with the local spread s(z) = d log length / dz > 0 the fit solves

    minimise  integral of (d log s / dz)^2 dz
    so that   p90, and median, mean, std where published, are met, and lower <= lengths <= upper

Nothing bends where no figure asks for it. A lognormal set comes out as itself: median 60, p90 95 and mean 64
(CNN/DailyMail outputs, LENS Table 4) give s = ln(95/60)/1.2816 = 0.3586 everywhere, whose mean is
60·exp(0.3586^2/2) = 63.98. Unknowns: the log length at the lowest level and log s on each of the 11 pieces; solved
with SLSQP. The shipped knots are such solutions, so sampling never runs this.
"""

from __future__ import annotations

import math
import warnings

import numpy as np
import numpy.typing as npt
from scipy.optimize import NonlinearConstraint, minimize
from scipy.special import ndtri

from pytest_npubench.errors import WorkloadError
from pytest_npubench.workloads.published import PublishedLengths
from pytest_npubench.workloads.quantiles import LEVELS, QuantileCurve

_END = 1e-4  # the ends of the curve have no finite score; they stand at the scores of 1e-4 and 1 - 1e-4
_SCORES = ndtri(np.clip(LEVELS, _END, 1 - _END))
_GAPS = np.diff(_SCORES)
_CENTRE_GAPS = (_SCORES[2:] - _SCORES[:-2]) / 2
_SCORE_P90 = float(ndtri(0.9))
_MAX_MISS = 1e-4  # a solution may miss a published figure by this fraction


def fit(published: PublishedLengths) -> QuantileCurve:
    """Returns the smoothest curve with the published figures. Raises WorkloadError when none has them all."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # steps on the way may leave the bounds; the end is checked
        solution = minimize(
            _roughness,
            _lognormal_start(published),
            method="SLSQP",
            bounds=[(math.log(published.lower), None)] + [(-12.0, 3.0)] * len(_GAPS),  # spreads from 6e-6 to 20
            constraints=_constraints(published),
            options={"maxiter": 1000, "ftol": 1e-12},
        )
    misses = np.abs(_misses(solution.x, published))
    if not solution.success or misses.max() > _MAX_MISS:
        raise WorkloadError(f"no length distribution found with {published}: {solution.message}")
    return _curve(solution.x)


def _curve(unknowns: npt.NDArray[np.float64]) -> QuantileCurve:
    steps = np.exp(unknowns[1:]) * _GAPS
    log_lengths = unknowns[0] + np.concatenate(([0.0], np.cumsum(steps)))
    return QuantileCurve(knots=tuple(np.exp(log_lengths).tolist()))


def _roughness(unknowns: npt.NDArray[np.float64]) -> float:
    return float(np.sum(np.diff(unknowns[1:]) ** 2 / _CENTRE_GAPS))


def _misses(unknowns: npt.NDArray[np.float64], published: PublishedLengths) -> npt.NDArray[np.float64]:
    """Returns the log ratios of the curve's figures to the published figures."""
    curve = _curve(unknowns)
    mean, std = curve.moments()
    pairs = (
        (curve.knots[LEVELS.index(0.9)], published.p90),
        (curve.knots[LEVELS.index(0.5)], published.median),
        (mean, published.mean),
        (std, published.std),
    )
    return np.log([reached / wanted for reached, wanted in pairs if wanted is not None])


def _constraints(published: PublishedLengths) -> list[NonlinearConstraint]:
    constraints = [NonlinearConstraint(lambda unknowns: _misses(unknowns, published), 0.0, 0.0)]
    if math.isfinite(published.upper):
        top = math.log(published.upper)
        constraints.append(NonlinearConstraint(lambda unknowns: [math.log(_curve(unknowns).knots[-1])], -np.inf, top))
    return constraints


def _lognormal_start(published: PublishedLengths) -> npt.NDArray[np.float64]:
    """Returns the lognormal through median and p90, or else that with the published mean and standard deviation."""
    if published.median is not None:
        spread = math.log(published.p90 / published.median) / _SCORE_P90
        centre = math.log(published.median)
    else:
        assert published.std is not None  # PublishedLengths wants one of the two
        spread = math.sqrt(math.log1p((published.std / published.mean) ** 2))
        centre = math.log(published.mean) - spread**2 / 2
    lowest = max(math.log(published.lower), centre + spread * _SCORES[0])
    return np.concatenate(([lowest], np.full(len(_GAPS), math.log(spread))))
