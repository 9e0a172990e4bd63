"""Is a case unchanged? Not "no difference was found" but "a difference beyond the limit is ruled out".

Two one-sided tests (Schuirmann 1987, 10.1007/BF01068419): the difference is above -limit, and it is below +limit. Both
must hold, so the p-value is the larger of the two; no correction is needed.

Worked number: difference 0, limit 0.03, standard error 0.01: t = 3 on either side; with 9 degrees of freedom
p = 0.0075. At standard error 0.03, t = 1 and p = 0.17: too noisy to call unchanged.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pytest_npubench.stats.checks import FloatArray, positive
from pytest_npubench.stats.margin_test import one_sided_p


def equivalence_p(
    difference: npt.ArrayLike, limit: float, standard_error: npt.ArrayLike, degrees_of_freedom: npt.ArrayLike
) -> FloatArray:
    """p-value of H0: |difference| >= limit; array arguments broadcast.

    Raises MeasurementError as `margin_test.one_sided_p`, ConfigError for a limit that is not above 0.
    """
    positive("limit", limit)
    above = one_sided_p(difference, -limit, standard_error, degrees_of_freedom)
    below = one_sided_p(np.negative(difference), -limit, standard_error, degrees_of_freedom)
    return np.maximum(above, below)
