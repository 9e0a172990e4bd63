"""From a campaign's rounds to what predictors are fitted on: the profile points, and nothing of the drawn batches."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.measurement import CompileRecord
from pytest_npubench.engines.shapes import dense_shape
from pytest_npubench.errors import NpubenchError
from pytest_npubench.predictors import available
from pytest_npubench.predictors.profile import BucketProfile
from pytest_npubench.predictors.protocol import NO_PARTS, ModelRun, PartSamples, ProfileSamples
from pytest_npubench.predictors.two_point import ProfilePoint, fit
from pytest_npubench.suites.buckets.estimated_binaries import estimated_profile
from pytest_npubench.suites.buckets.plan import BucketPlan, is_continuous
from pytest_npubench.suites.buckets.points import Variant, canary_samples, profile_name

KeyT = TypeVar("KeyT")


def profile_samples(plan: BucketPlan, measured: Measured, buckets: Sequence[int]) -> ProfileSamples:
    """Collects the samples of these buckets, and the moves into all but the smallest. Raises MeasurementError."""
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
        canaries_s=canary_samples(measured.rounds),
    )


def _run(plan: BucketPlan) -> tuple[ModelRun | None, str]:
    """What ran where; or None and why."""
    if plan.spec.aiconfigurator is None:
        return None, f"hardware/{plan.spec.file_name}.toml names no system of aiconfigurator's"
    from pytest_npubench.engines.model_directory import config_of

    dtype = plan.spec.dtype
    try:
        config = config_of(dense_shape(plan.model), dtype)
    except NpubenchError as error:
        return None, str(error)
    system, num_devices = plan.spec.aiconfigurator, plan.spec.tensor_parallel
    return ModelRun(config=config, dtype=dtype, system=system, num_devices=num_devices), ""


def _parts(plan: BucketPlan, measured: Measured, buckets: Sequence[int]) -> PartSamples:
    """What the plan's rivals measured beside these buckets."""
    depths = {depth for rival in available(plan.rivals) for depth in rival.depths}
    return samples_of_parts(
        measured,
        plan.profile_points(buckets),
        rivals=plan.rivals,
        num_layers=dense_shape(plan.model).num_layers,
        shallow={depth: plan.shallow(depth) for depth in sorted(depths)},
        why_not=f"unavailable: {plan.runner.title} does not run parts of a decoder alone",
    )


def samples_of_parts(
    measured: Measured,
    points: Sequence[ProfilePoint],
    *,
    rivals: Sequence[str],
    num_layers: int,
    shallow: Mapping[int, Variant],
    why_not: str,
) -> PartSamples:
    """What rounds hold for these rivals beside the profile points of a decoder of num_layers. shallow: engines of
    fewer layers, by their number. A part that failed is left out, and the last one's reason kept, else why_not."""
    buckets = tuple(sorted({point.bucket for point in points}))
    parts = {part: part.name for rival in available(rivals) for part in rival.parts(buckets)}
    names: dict[int, dict[ProfilePoint, str]] = {
        depth: {point: variant.prefix + profile_name(point.bucket, point.output_tokens) for point in points}
        for depth, variant in shallow.items()
    }
    every = [*(name for own in names.values() for name in own.values()), *parts.values()]
    whys = [measured.failures[name] for name in every if name in measured.failures]
    return PartSamples(
        num_layers=num_layers,
        shallow_s={depth: _samples(measured, own) for depth, own in names.items()},
        shallow_compiles=tuple(
            record
            for variant in shallow.values()
            for bucket in buckets
            for record in bucket_binaries(variant.measured(measured).compiles, bucket)
        ),
        parts_s=_samples(measured, parts),
        operator_compiles=tuple(one for one in measured.compiles if one.name in set(parts.values())),
        why_not=whys[-1] if whys else why_not,
    )


def _samples(measured: Measured, names: Mapping[KeyT, str]) -> dict[KeyT, Sequence[float]]:
    """Collects the samples of those points that have any."""
    samples_s = {
        key: tuple(value for row in measured.rounds for value in row.get(name, ())) for key, name in names.items()
    }
    return {key: values for key, values in samples_s.items() if values and names[key] not in measured.failures}


def bucket_binaries(compiles: Iterable[CompileRecord], bucket: int) -> tuple[CompileRecord, ...]:
    """Returns the prefill and decode binaries of one bucket."""
    return tuple(
        record
        for record in compiles
        if record.name.startswith(("prefill-", "decode-")) and record.name.endswith(f"-{bucket}")
    )


def move_binaries(compiles: Iterable[CompileRecord], buckets: Collection[int]) -> tuple[CompileRecord, ...]:
    """Keeps the binaries of moves into these buckets."""
    return tuple(
        record for record in compiles if record.name.startswith("move-") and int(record.name.split("-")[-1]) in buckets
    )


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
