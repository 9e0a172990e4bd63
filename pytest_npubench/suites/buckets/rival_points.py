"""What rivals of LENS that add up parts measure, in the same rounds: points that no case is judged by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.parts import DEPTHS, Part, kernel_parts, operator_parts
from pytest_npubench.engines.shapes import dense_shape
from pytest_npubench.errors import NpubenchError
from pytest_npubench.predictors import predictor
from pytest_npubench.predictors.protocol import Needs, PartSamples
from pytest_npubench.predictors.two_point import ProfilePoint
from pytest_npubench.suites.buckets.plan import BucketPlan
from pytest_npubench.suites.buckets.points import BucketPoint, Variant, profile_name
from pytest_npubench.suites.buckets.variants import bucket_binaries, on

KeyT = TypeVar("KeyT")

VISIT_S = 0.1
ONCE_S = 0.0  # a trace takes 50 ms to read, however short the step


def rival_points(plan: BucketPlan, buckets: Sequence[int]) -> tuple[BucketPoint, ...]:
    """Of these buckets, what the plan's rivals need beside LENS's points; a rival that cannot be had needs nothing."""
    needs = _needs(plan.rivals)
    points = []
    if Needs.SHALLOW in needs and plan.service.compares_engines:
        points += [
            replace(shallow(plan, depth).of(plan.profile_point(one)), beside=True, visit_s=VISIT_S)
            for depth in DEPTHS
            for one in plan.profile_points(buckets)
        ]
    if Needs.OPERATORS in needs:
        points += [_point(part, VISIT_S) for part in operator_parts(tuple(buckets))]
    if Needs.KERNELS in needs:
        points += [_point(part, ONCE_S) for part in kernel_parts(tuple(buckets))]
    return tuple(points)


def part_samples(plan: BucketPlan, measured: Measured, buckets: Sequence[int]) -> PartSamples:
    """What came of them."""
    return samples_of_parts(
        measured,
        plan.profile_points(buckets),
        num_layers=dense_shape(plan.model).num_layers,
        shallow={depth: shallow(plan, depth) for depth in DEPTHS},
        why_not=f"unavailable: {plan.runner.title} does not run parts of a decoder alone",
    )


def samples_of_parts(
    measured: Measured,
    points: Sequence[ProfilePoint],
    *,
    num_layers: int,
    shallow: Mapping[int, Variant],
    why_not: str,
) -> PartSamples:
    """What rounds hold for rivals beside these profile points of a decoder of num_layers; shallow: engines with fewer
    layers, by their number. A part that failed is left out, and the last one's reason kept, else why_not."""
    buckets = tuple(sorted({point.bucket for point in points}))
    parts = {part: part.name for part in (*operator_parts(buckets), *kernel_parts(buckets))}
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
            for record in bucket_binaries(on(measured, variant).compiles, bucket)
        ),
        parts_s=_samples(measured, parts),
        operator_compiles=tuple(one for one in measured.compiles if one.name in set(parts.values())),
        why_not=whys[-1] if whys else why_not,
    )


def _samples(measured: Measured, names: Mapping[KeyT, str]) -> dict[KeyT, Sequence[float]]:
    """Of those points that have any."""
    samples_s = {
        key: tuple(value for row in measured.rounds for value in row.get(name, ())) for key, name in names.items()
    }
    return {key: values for key, values in samples_s.items() if values and names[key] not in measured.failures}


def shallow(plan: BucketPlan, depth: int) -> Variant:
    """The plan's engine with that many of its layers."""
    return Variant(batch_size=plan.batch_size, buckets=plan.buckets, num_layers=depth)


def _point(part: Part, visit_s: float) -> BucketPoint:
    return BucketPoint(name=part.name, part=part, beside=True, visit_s=visit_s)


def _needs(rivals: Sequence[str]) -> set[Needs]:
    needs: set[Needs] = set()
    for name in rivals:
        try:
            needs |= predictor(name).needs
        except NpubenchError:  # its cases say why
            continue
    return needs
