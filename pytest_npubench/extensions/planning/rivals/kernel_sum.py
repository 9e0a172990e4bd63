"""The sum of kernels: what the device's trace says its kernels take in a prefill and a decode step of each bucket.

    TTFT_b, TBT_b   the sum of the kernels of the bucket's prefill and decode step
    E2E             by LENS's equations (arXiv 2606.18042, Eq. 6 to 11)

Kernels are the unit of NeuSight and Habitat (ASPLOS 2025; USENIX ATC 2021), which LENS is set against. Launches, gaps
and transfers to the host are in no kernel, so the sum is short by them; kernels that run at once, on several cores or
queues, each count in full, so it is long by these. Moves of the KV cache are those of the engine.

Worked number: kernels of 10 ms in a prefill and 2 ms in a step of bucket 128 make 10 + 32 * 2 = 74 ms of a request with
95 tokens in and 33 out.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from pytest_npubench.core.measurement import CostRecord, Phase
from pytest_npubench.core.parts import Part
from pytest_npubench.predictors.lens import FittedLens, LensPredictor
from pytest_npubench.predictors.profile import BucketProfile, BucketTiming
from pytest_npubench.predictors.protocol import Predictor, ProfileSamples
from pytest_npubench.predictors.two_point import count_cost


class KernelSum(Predictor):
    name = "kernel_sum"
    about = "the kernels that the device's trace has of each step, added up (the unit of NeuSight and Habitat)"

    def parts(self, buckets: Sequence[int]) -> tuple[Part, ...]:
        """The prefill and the decode step of each bucket."""
        return tuple(Part(phase=phase, bucket=bucket) for bucket in buckets for phase in Phase)

    def fit(self, samples: ProfileSamples) -> FittedLens:
        """Raises MeasurementError where kernels were not traced."""
        profile = BucketProfile(
            buckets={
                bucket: BucketTiming(
                    ttft_s=fmean(samples.parts.of(Part(phase=Phase.PREFILL, bucket=bucket))),
                    tbt_s=fmean(samples.parts.of(Part(phase=Phase.DECODE, bucket=bucket))),
                )
                for bucket in samples.buckets
            },
            batch_size=samples.batch_size,
            prefill_shared=samples.prefill_shared,
            transitions_s=samples.transitions_s,
        )
        return FittedLens(lens=LensPredictor(profile, keys=samples.keys), finished=samples.finished)

    def cost(self, samples: ProfileSamples) -> CostRecord:
        """The engine's own binaries, and a traced step of each."""
        points = {part: samples.parts.of(part) for part in self.parts(samples.buckets)}
        return count_cost(samples.compiles, points, sessions=1)


PREDICTOR = KernelSum()
