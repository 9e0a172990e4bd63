"""The sum of layers: engines of one and of two layers, and as many layers more as the model has.

    TTFT_b = TTFT_b(1) + (L - 1) (TTFT_b(2) - TTFT_b(1)), TBT_b likewise, L the model's layers
    E2E    by LENS's equations (arXiv 2606.18042, Eq. 6 to 11)

It is how MaverIQ measures (doi 10.1145/3712285.3759867: a proxy that has the unique layers of a model, compared with in
LENS, section 5.3): quick to load and run, but every bucket is compiled for each depth. What a compiler does across
layers, and what fits a cache with two layers and not with all, is not in it. Each depth is profiled as LENS profiles,
two points a bucket; moves of the KV cache are those of the whole engine.

Worked number: one layer decodes in 3 ms a step, two in 5 ms: 2 ms a layer and 1 ms beside them, so 16 take 33 ms.
"""

from __future__ import annotations

from pytest_npubench.core.measurement import CostRecord
from pytest_npubench.errors import MeasurementError
from pytest_npubench.predictors.lens import FittedLens, LensPredictor
from pytest_npubench.predictors.profile import BucketProfile, BucketTiming
from pytest_npubench.predictors.protocol import Predictor, ProfileSamples
from pytest_npubench.predictors.two_point import count_cost, fit


class LayerSum(Predictor):
    name = "layer_sum"
    about = "engines of one and two layers, and the difference once for each further one (MaverIQ's measurement)"
    depths = (1, 2)

    def fit(self, samples: ProfileSamples) -> FittedLens:
        """Raises MeasurementError where shallow engines were not measured, or a time comes out negative."""
        shallow, deeper = (_profile(samples, depth) for depth in self.depths)
        layers = samples.parts.num_layers
        profile = BucketProfile(
            buckets={
                bucket: BucketTiming(
                    ttft_s=_at(layers, shallow.buckets[bucket].ttft_s, deeper.buckets[bucket].ttft_s),
                    tbt_s=_at(layers, shallow.buckets[bucket].tbt_s, deeper.buckets[bucket].tbt_s),
                )
                for bucket in shallow.buckets
            },
            batch_size=samples.batch_size,
            prefill_shared=samples.prefill_shared,
            transitions_s=samples.transitions_s,
        )
        return FittedLens(lens=LensPredictor(profile, keys=samples.keys), finished=samples.finished)

    def cost(self, samples: ProfileSamples) -> CostRecord:
        """Both depths."""
        points = {
            (depth, point): values for depth in self.depths for point, values in samples.parts.shallow_s[depth].items()
        }
        return count_cost(samples.parts.shallow_compiles, points, sessions=len(self.depths))


def _profile(samples: ProfileSamples, depth: int) -> BucketProfile:
    measured = samples.parts.shallow_s.get(depth, {})
    if measured.keys() != samples.samples_s.keys():
        raise MeasurementError(samples.parts.why_not)
    return fit(measured, batch_size=samples.batch_size, prefill_shared=samples.prefill_shared)


def _at(layers: int, one_s: float | None, two_s: float | None) -> float | None:
    """Seconds of that many layers."""
    return None if one_s is None or two_s is None else one_s + (layers - 1) * (two_s - one_s)


PREDICTOR = LayerSum()
