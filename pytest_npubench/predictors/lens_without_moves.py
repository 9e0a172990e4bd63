"""LENS without what it adds to the paper: the seconds that the KV cache takes to move into a larger bucket.

Its equations and points are LENS's own (arXiv 2606.18042, Eq. 6 to 11), its cost has no moves.

Worked number: a request that grows out of bucket 128 once, where the move takes 0.5 ms: 0.5 ms less than LENS.
"""

from __future__ import annotations

from dataclasses import replace

from pytest_npubench.predictors.lens import PREDICTOR as LENS
from pytest_npubench.predictors.lens import FittedLens
from pytest_npubench.predictors.protocol import Predictor, ProfileSamples


class LensWithoutMoves(Predictor):
    name = "lens_without_moves"
    about = "LENS without the moves of the KV cache into larger buckets, as the paper has it"

    def fit(self, samples: ProfileSamples) -> FittedLens:
        return LENS.fit_padded(replace(samples, moves_s={}))


PREDICTOR = LensWithoutMoves()
