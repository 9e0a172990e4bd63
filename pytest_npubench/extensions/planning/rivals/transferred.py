"""Another device's profile, scaled to this one (LENS, section 6: what it leaves to be done).

    on the other device     t = r + l      r = min(t, max(FLOPs x a, bytes x b)): what arithmetic or memory explains
    on this device          t' = r max(FLOPs x a', bytes x b') / max(FLOPs x a, bytes x b) + l c' / c
    E2E                     by LENS's equations (arXiv 2606.18042, Eq. 6 to 11)

a, b and c are the seconds of a FLOP, a byte and a launch there by the canary kernels, which each device ran in the
rounds of its profile; a', b' and c' are those here. Where a device ran none, the peaks of both hardware files tell a
and b, and l counts as r does. A step's FLOPs and bytes follow from the decoder's shape. Moves of the KV cache are
copies, and scale as bytes do. Nothing that this device took for a profile point is looked at.

Worked number: a decode step of 4 ms, of which its bytes explain 3 ms, on a device whose copies take half as long and
whose launches take as long as there: 1.5 + 1 = 2.5 ms.
"""

from __future__ import annotations

from pytest_npubench.core.measurement import CostRecord, Phase
from pytest_npubench.errors import MeasurementError
from pytest_npubench.predictors.lens import FittedLens, LensPredictor
from pytest_npubench.predictors.profile import BucketProfile, BucketTiming
from pytest_npubench.predictors.protocol import Predictor, ProfileSamples
from pytest_npubench.predictors.transfer import ProfileTransfer
from pytest_npubench.predictors.two_point import count_cost


class Transferred(Predictor):
    name = "transferred"
    about = "another device's profile (--npubench-transfer), scaled by the canaries of both or their peaks"
    basis = "from another device's profile"
    needs_canaries = True

    def fit(self, samples: ProfileSamples) -> FittedLens:
        """Raises MeasurementError with the reason where there is no such profile, or a bucket is not in it."""
        transfer = samples.transfer
        if transfer is None:
            raise MeasurementError(f"unavailable: {samples.why_no_transfer}")
        missing = [bucket for bucket in samples.buckets if bucket not in transfer.profile.buckets]
        if missing:
            raise MeasurementError(f"unavailable: {transfer.source} has no bucket {missing[0]}")
        moves_s = transfer.profile.transitions_s or {}
        byte_ratio = transfer.here.byte_s / transfer.there.byte_s
        profile = BucketProfile(
            buckets={bucket: _scaled(transfer, bucket) for bucket in samples.buckets},
            batch_size=samples.batch_size,
            prefill_shared=samples.prefill_shared,
            transitions_s={bucket: moves_s[bucket] * byte_ratio for bucket in samples.buckets[1:] if bucket in moves_s}
            or None,
        )
        return FittedLens(lens=LensPredictor(profile, keys=samples.keys), finished=samples.finished)

    def cost(self, samples: ProfileSamples) -> CostRecord:
        """Nothing but canaries runs here."""
        return count_cost((), {}, sessions=1)


def _scaled(transfer: ProfileTransfer, bucket: int) -> BucketTiming:
    timing = transfer.profile.buckets[bucket]
    times_s = {Phase.PREFILL: timing.ttft_s, Phase.DECODE: timing.tbt_s}
    ttft_s, tbt_s = (None if s is None else transfer.scaled_s(s, phase, bucket) for phase, s in times_s.items())
    return BucketTiming(ttft_s=ttft_s, tbt_s=tbt_s)


PREDICTOR = Transferred()
