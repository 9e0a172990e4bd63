"""The vendor's compiler as a rival: its own estimate of each bucket's binaries, added up as LENS adds measured times.

    TTFT_b, TBT_b, moves   estimated seconds of the bucket's binaries; nothing is measured
    E2E                    arXiv 2606.18042, Eq. 6 to 9

Worked number: estimates of 10 ms for a prefill and 2 ms for a step of bucket 128 make 10 + 32 * 2 = 74 ms of a request
with 95 tokens in and 33 out, however long the device took.
"""

from __future__ import annotations

from pytest_npubench.core.measurement import NOT_RUN, CostRecord
from pytest_npubench.errors import MeasurementError
from pytest_npubench.predictors.lens import FittedLens, LensPredictor
from pytest_npubench.predictors.protocol import Predictor, ProfileSamples
from pytest_npubench.predictors.two_point import count_cost


class Compiler(Predictor):
    name = "compiler"
    about = f"the vendor's compiler's estimate of each bucket ({NOT_RUN}), added up by LENS's equations"
    basis = NOT_RUN

    def fit(self, samples: ProfileSamples) -> FittedLens:
        """Raises MeasurementError with the reason where the compiler estimated nothing."""
        if samples.estimates is None:
            raise MeasurementError(f"unavailable: {samples.why_no_estimates}")
        return FittedLens(lens=LensPredictor(samples.estimates, keys=samples.keys), finished=samples.finished)

    def cost(self, samples: ProfileSamples) -> CostRecord:
        """Compiling alone."""
        return count_cost(samples.compiles, {}, sessions=1)


PREDICTOR = Compiler()
