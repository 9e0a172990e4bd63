"""A length distribution as a quantile curve: log length over quantile level, a monotone cubic spline through knots.

    length(u) = exp(pchip(LEVELS, log lengths)(u)),   0 <= u < 1

PCHIP (Fritsch and Carlson, SIAM J. Numer. Anal. 17, 1980) never overshoots, so the curve rises wherever the knots do
and the ends are the bounds. Worked example: knots that all lie on u -> 100·e^u give length(0.5) = 100·e^0.5 = 164.9.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pytest_npubench.errors import WorkloadError

# Dense where a tail bends: the last knots decide the mean of a long-tailed set, the middle ones its median.
LEVELS = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1.0)
_NODES_PER_PIECE = 16  # exp of a cubic: Gauss-Legendre with 16 nodes is exact to rounding on every piece

_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantileCurve:
    """Lengths in tokens at LEVELS, one a level, rising. Raises WorkloadError for any other number or order of knots."""

    knots: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.knots) != len(LEVELS):
            raise WorkloadError(f"a quantile curve has {len(self.knots)} knots; want {len(LEVELS)}, at levels {LEVELS}")
        if not self.knots[0] >= 1 or not np.all(np.diff(self.knots) > 0) or not np.isfinite(self.knots[-1]):
            raise WorkloadError(f"knots {self.knots}; want finite lengths of at least 1 token, each above the last")

    def quantile(self, levels: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Lengths in tokens, not rounded, at quantile levels in [0, 1]; any shape, the same shape back."""
        return np.exp(_pchip(np.array(LEVELS), np.log(self.knots), np.asarray(levels)))

    def lengths(self, levels: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """Whole lengths (>= 1 token) at quantile levels: uniform levels give lengths of this distribution."""
        return np.rint(self.quantile(levels)).astype(np.int64)

    def moments(self) -> tuple[float, float]:
        """Mean and standard deviation in tokens, by integrating the curve (rounding to whole tokens left out)."""
        lengths = self.quantile(_NODES)
        mean = float(_WEIGHTS @ lengths)
        return mean, float(np.sqrt(_WEIGHTS @ (lengths - mean) ** 2))


def _pchip(x: _Floats, y: _Floats, at: _Floats) -> _Floats:
    """What scipy.interpolate.PchipInterpolator(x, y)(at) returns, to the bit, for rising y: importing that takes half a
    second, in each process that draws lengths."""
    widths = np.diff(x)
    slopes = np.diff(y) / widths
    before, after = 2 * widths[1:] + widths[:-1], widths[1:] + 2 * widths[:-1]
    with np.errstate(divide="ignore"):  # knots whose logarithms are equal
        inner = 1.0 / ((before / slopes[:-1] + after / slopes[1:]) / (before + after))
    derivatives = np.array([_end(widths, slopes), *inner, _end(widths[::-1], slopes[::-1])])
    bends = (derivatives[:-1] + derivatives[1:] - 2 * slopes) / widths
    cubic, square = bends / widths, (slopes - derivatives[:-1]) / widths - bends
    piece = np.clip(np.searchsorted(x, at, side="right") - 1, 0, len(widths) - 1)
    step = at - x[piece]
    power = step * step
    values: _Floats = y[piece] + derivatives[piece] * step + square[piece] * power + cubic[piece] * (power * step)
    return values


def _end(widths: _Floats, slopes: _Floats) -> float:
    """The derivative at an end from the two pieces next to it, kept where the curve still rises and does not
    overshoot (Moler, Numerical Computing with MATLAB, 2004, section 3.4)."""
    derivative = ((2 * widths[0] + widths[1]) * slopes[0] - widths[0] * slopes[1]) / (widths[0] + widths[1])
    return float(max(derivative, 0.0))


def _integration_rule() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    nodes, weights = np.polynomial.legendre.leggauss(_NODES_PER_PIECE)
    half_widths = np.diff(LEVELS)[:, np.newaxis] / 2
    centres = np.asarray(LEVELS[:-1])[:, np.newaxis] + half_widths
    return (centres + half_widths * nodes).ravel(), (half_widths * weights).ravel()


_NODES, _WEIGHTS = _integration_rule()
