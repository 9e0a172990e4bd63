"""LENS with the printed count of steps: a decode step for every output token, T = l_out, and no moves of the KV cache.

Fitted on the same two points a bucket with the same count (arXiv 2606.18042, Eq. 3 to 11, 14 and 15). Requests that
ended count in a padded batch as the engine has them.

Worked number: E1 = 40 ms of one output token and E2 = 104 ms of 33, one request: TBT = 64 / 32 = 2 ms and TTFT = 38 ms,
not 40, as the printed text has a decode step behind the first token too.
"""

from __future__ import annotations

from pytest_npubench.predictors.lens import FittedLens, LensPredictor
from pytest_npubench.predictors.protocol import Predictor, ProfileSamples
from pytest_npubench.predictors.two_point import fit


class LiteralLens(Predictor):
    name = "lens_literal"
    about = "the paper's equations as printed: a decode step for every output token, no moves (arXiv 2606.18042)"

    def fit(self, samples: ProfileSamples) -> FittedLens:
        """Raises MeasurementError where a TTFT comes out negative, as one decode step is taken off it."""
        profile = fit(
            samples.samples_s, batch_size=samples.batch_size, prefill_shared=samples.prefill_shared, literal=True
        )
        return FittedLens(lens=LensPredictor(profile, literal=True, keys=samples.keys), finished=samples.finished)


PREDICTOR = LiteralLens()
