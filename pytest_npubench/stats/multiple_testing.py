"""Many cases are tested in one night: how small must a p-value be before it means anything?

Benjamini and Hochberg (1995, 10.1111/j.2517-6161.1995.tb02031.x): of m sorted p-values reject the k smallest, k the
largest rank with p_(k) <= k q / m. At most a fraction q of the rejected are then expected to be false. The adjusted
p-value of a case is the smallest q at which it would be rejected, min over ranks j >= k of p_(j) m / j.

Worked number: p = (0.01, 0.02, 0.03, 0.20), m = 4: p m / rank = (0.04, 0.04, 0.04, 0.20); at q = 0.05 the first three
are rejected, though 0.03 alone is more than 0.05 / 4.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pytest_npubench.errors import MeasurementError
from pytest_npubench.stats.checks import FloatArray, require


def adjusted_p_values(p_values: npt.ArrayLike) -> FloatArray:
    """Adjusted p-values of shape (m,), in the order given; m may be 0.

    Raises MeasurementError: more than one dimension, a p-value that is NaN or outside [0, 1].
    """
    p = np.asarray(p_values, dtype=np.float64)
    if p.ndim != 1:
        raise MeasurementError(f"p_values of shape {p.shape}; want one row")
    require("p_values", p, (p >= 0) & (p <= 1), "a probability from 0 to 1")
    order = np.argsort(p, kind="stable")
    scaled = p[order] * (p.size / np.arange(1, p.size + 1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum.accumulate(scaled[::-1])[::-1]  # the last rank's is p itself, so none exceeds 1
    return adjusted
