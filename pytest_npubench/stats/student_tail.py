"""Student's t density and upper tail for millions of values: the tail is read from a table, 1e-3 off at most.

Worked number: P(T_7 > 4) = 0.0026, and the log density of T_7 at 4 is -5.7.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from pytest_npubench.stats.checks import FloatArray

NUM_KNOTS = 1500
FARTHEST = 12.0
"""The knots are sinh of 0 to this: 81,000 scales out the tail of 3 degrees is 1e-15, and is not read any further."""


def log_density(squares: FloatArray, freedom: float) -> FloatArray:
    """Returns the log density of values with these squares, in their precision."""
    half = (freedom + 1) / 2
    constant = math.lgamma(half) - math.lgamma(freedom / 2) - math.log(freedom * math.pi) / 2
    kind = squares.dtype.type
    return np.asarray(kind(constant) - kind(half) * np.log1p(squares * kind(1 / freedom)))


def upper_tail(values: FloatArray, freedom: float) -> FloatArray:
    """P(T > value)."""
    knots, tails = _table(freedom)
    beyond = np.interp(np.abs(values), knots, tails)
    return np.asarray(np.where(values > 0, beyond, 1 - beyond))


@lru_cache(maxsize=16)
def _table(freedom: float) -> tuple[FloatArray, FloatArray]:
    from scipy import special  # a quarter of a second that collecting cases need not pay

    knots = np.sinh(np.linspace(0.0, FARTHEST, NUM_KNOTS))
    return knots, np.asarray(special.stdtr(freedom, -knots), dtype=np.float64)
