"""From a campaign's samples to a LENS profile and its predictions of the drawn batches."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_npubench.campaign.points import Measured
from pytest_npubench.predictors.lens import BucketProfile, LensPredictor
from pytest_npubench.predictors.two_point import fit
from pytest_npubench.suites.buckets.plan import BucketPlan
from pytest_npubench.suites.buckets.points import BucketPoint


def profile(plan: BucketPlan, measured: Measured, buckets: Sequence[int]) -> BucketProfile:
    """TTFT_b, TBT_b and the moves into these buckets, by the mean over all rounds.

    Each prompt has its share of a prefill (Eq. 7), whether the engine takes one after the other or packs them.
    The mean, because an E2E is a sum of steps and the mean of a sum is the sum of the means; the median is not.
    """
    samples = {
        point: measured.samples(plan.profile_point(point).name).samples_s for point in plan.profile_points(buckets)
    }
    transitions_s = {
        move.move[1]: measured.samples(move.name).mean_s
        for move in plan.moves(sorted(buckets)[1:])
        if move.move is not None
    }
    return fit(
        samples,
        batch_size=plan.batch_size,
        prefill_shared=plan.service.prefill_shared,
        transitions_s=transitions_s or None,
    )


def predict(plan: BucketPlan, lens: BucketProfile, batch: BucketPoint) -> float:
    """Seconds of one drawn batch, as the plan's engine runs it."""
    lengths = [(item.input_tokens, item.output_tokens) for item in batch.requests]
    keys = plan.service.keys(tuple(sorted(lens.buckets)))
    return LensPredictor(lens, keys=keys).predict_batch(lengths, finished=plan.service.finished).e2e_s
