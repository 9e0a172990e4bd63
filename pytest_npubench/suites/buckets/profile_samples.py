"""From a campaign's rounds to what predictors are fitted on: the profile points, and nothing of the drawn batches."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_npubench.campaign.points import Measured
from pytest_npubench.errors import NpubenchError
from pytest_npubench.predictors.profile import BucketProfile
from pytest_npubench.predictors.protocol import NO_PARTS, ModelRun, PartSamples, ProfileSamples
from pytest_npubench.predictors.two_point import fit
from pytest_npubench.suites.buckets.estimated_binaries import estimated_profile
from pytest_npubench.suites.buckets.plan import BucketPlan, is_continuous
from pytest_npubench.suites.buckets.variants import bucket_binaries, move_binaries


def profile_samples(plan: BucketPlan, measured: Measured, buckets: Sequence[int]) -> ProfileSamples:
    """Those of these buckets, with the moves into each but the smallest. Raises MeasurementError where one failed."""
    samples_s = {
        point: measured.samples(plan.profile_point(point).name).samples_s for point in plan.profile_points(buckets)
    }
    moves_s = {
        move.move[1]: measured.samples(move.name).samples_s
        for move in plan.moves(sorted(buckets)[1:])
        if move.move is not None
    }
    estimates, why = estimated_profile(plan, measured.compiles, buckets)
    run, why_no_run = _run(plan)
    return ProfileSamples(
        samples_s=samples_s,
        batch_size=plan.batch_size,
        finished=plan.service.finished,
        keys=plan.service.keys(tuple(sorted(buckets))),
        prefill_shared=plan.service.prefill_shared,
        pads=not is_continuous(plan, measured),
        moves_s=moves_s,
        move_compiles=move_binaries(measured.compiles, moves_s),
        compiles=tuple(record for bucket in buckets for record in bucket_binaries(measured.compiles, bucket)),
        estimates=estimates,
        why_no_estimates=why,
        parts=_parts(plan, measured, buckets) if plan.rivals else NO_PARTS,
        run=run,
        why_no_run=why_no_run,
    )


def _run(plan: BucketPlan) -> tuple[ModelRun | None, str]:
    """What ran where; or None and why."""
    if plan.spec.aiconfigurator is None:
        return None, f"hardware/{plan.spec.file_name}.toml names no system of aiconfigurator's"
    from pytest_npubench.engines.hf_config import config_of
    from pytest_npubench.engines.shapes import dense_shape

    dtype = plan.spec.dtype
    try:
        config = config_of(dense_shape(plan.model), dtype)
    except NpubenchError as error:
        return None, str(error)
    system, num_devices = plan.spec.aiconfigurator, plan.spec.tensor_parallel
    return ModelRun(config=config, dtype=dtype, system=system, num_devices=num_devices), ""


def _parts(plan: BucketPlan, measured: Measured, buckets: Sequence[int]) -> PartSamples:
    from pytest_npubench.suites.buckets.rival_points import part_samples

    return part_samples(plan, measured, buckets)


def lens_profile(plan: BucketPlan, measured: Measured, buckets: Sequence[int]) -> BucketProfile:
    """TTFT_b, TBT_b and the moves into these buckets, by the mean over all rounds.

    The mean, because an E2E is a sum of steps and the mean of a sum is the sum of the means; the median is not.
    """
    samples = profile_samples(plan, measured, buckets)
    return fit(
        samples.samples_s,
        batch_size=samples.batch_size,
        prefill_shared=samples.prefill_shared,
        transitions_s=samples.transitions_s,
    )
