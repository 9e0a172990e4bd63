"""What rivals of LENS that add up parts measure, in the same rounds: points that no case is judged by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.parts import Part, kernel_parts, operator_parts
from pytest_npubench.engines.shapes import dense_shape
from pytest_npubench.errors import NpubenchError
from pytest_npubench.predictors import predictor
from pytest_npubench.predictors.layer_sum import DEPTHS
from pytest_npubench.predictors.protocol import Needs, PartSamples
from pytest_npubench.suites.buckets.plan import BucketPlan
from pytest_npubench.suites.buckets.points import BucketPoint, Variant
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
    """What came of them. A part that failed is left out, and the last one's reason kept."""
    points = rival_points(plan, buckets)
    whys = [measured.failures[point.name] for point in points if point.name in measured.failures]
    parts = {point.part: point.name for point in points if point.part}
    depths = [depth for depth in DEPTHS if any(point.variant == shallow(plan, depth) for point in points)]
    return PartSamples(
        num_layers=dense_shape(plan.model).num_layers,
        shallow_s={
            depth: _samples(
                measured,
                {one: shallow(plan, depth).of(plan.profile_point(one)).name for one in plan.profile_points(buckets)},
            )
            for depth in depths
        },
        shallow_compiles=tuple(
            record
            for depth in depths
            for bucket in buckets
            for record in bucket_binaries(on(measured, shallow(plan, depth)).compiles, bucket)
        ),
        parts_s=_samples(measured, parts),
        operator_compiles=tuple(one for one in measured.compiles if one.name in set(parts.values())),
        why_not=whys[-1] if whys else f"unavailable: {plan.runner.title} does not run parts of a decoder alone",
    )


def _samples(measured: Measured, names: Mapping[KeyT, str]) -> dict[KeyT, Sequence[float]]:
    """Of those points that have any."""
    found = {key: tuple(value for row in measured.rounds for value in row.get(name, ())) for key, name in names.items()}
    return {key: values for key, values in found.items() if values and names[key] not in measured.failures}


def shallow(plan: BucketPlan, depth: int) -> Variant:
    """The plan's engine with that many of its layers."""
    return Variant(batch_size=plan.batch_size, buckets=plan.buckets, num_layers=depth)


def _point(part: Part, visit_s: float) -> BucketPoint:
    return BucketPoint(name=part.name, part=part, beside=True, visit_s=visit_s)


def _needs(rivals: Sequence[str]) -> set[Needs]:
    found: set[Needs] = set()
    for name in rivals:
        try:
            found |= predictor(name).needs
        except NpubenchError:  # its cases say why
            continue
    return found
