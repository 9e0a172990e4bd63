"""What cases say of binaries: their details, estimated seconds, and what an engine with them needs of the memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_npubench.extensions.compilers.compiled import INTEL
from pytest_npubench.extensions.compilers.suites.compiled.plan import BinaryPoint, BinaryVisit, CompiledPlan
from pytest_npubench.verdict.result import Metric

if TYPE_CHECKING:
    from pytest_npubench.engines.binary_estimate import Estimate

FEW_BYTES = 2**20  # tokens, lengths and logits of a step
Binaries = Mapping[BinaryPoint, BinaryVisit]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDetail:
    """One binary of a bucket: estimated seconds and their parts (engines/binary_estimate.py), the roofline, and what
    the compiler counted. No seconds where it tells no cycles."""

    estimated_s: float | None = None
    kernels_s: float | None = None
    collectives_s: float | None = None
    bound_s: float | None = None
    cycles: float | None
    code_bytes: float | None
    temporary_bytes: float | None
    cache_copies: float
    compile_cpu_s: float
    unpriced: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    vector_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledDetail:
    """`steps` by phase. need_bytes: weights, the caches of this bucket and all smaller ones, their code, and the
    largest temporary with its output; room_bytes: the device's memory, None where the hardware file has none. A
    prediction has its estimates of whole batches instead."""

    bucket: int | None = None
    steps: Mapping[str, StepDetail] | None = None
    need_bytes: float | None = None
    room_bytes: float | None = None
    estimated_s: tuple[float, ...] = ()


def step_cache_bytes(plan: CompiledPlan, bucket: int) -> float:
    """What a step of the bucket has to write in place on each device: the bucket's keys and values. On Intel's NPUs the
    host writes them."""
    if plan.spec.family == INTEL:
        return 0.0
    from pytest_npubench.engines.jax_dense.memory import cache_bytes
    from pytest_npubench.engines.shapes import dense_shape

    shape, devices = dense_shape(plan.model), plan.spec.tensor_parallel
    return float(cache_bytes(shape, bucket, plan.batch_size, plan.spec.dtype, devices))


def need_bytes(plan: CompiledPlan, binaries: Binaries) -> float:
    """Of each device with all of these binaries loaded: weights once, the caches of every bucket, all code, and the
    largest temporary with the output that is written beside its input, since steps run one after the other."""
    steps = {point: facts for point, facts in binaries.items() if point.larger is None}
    caches = {point: max(facts.donated_bytes, step_cache_bytes(plan, point.bucket)) for point, facts in steps.items()}
    weights = max(facts.argument_bytes - caches[point] for point, facts in steps.items())
    buckets = {point.bucket for point in steps}
    return (
        weights
        + sum(max(size for point, size in caches.items() if point.bucket == bucket) for bucket in buckets)
        + max((facts.temporary_bytes or 0.0) + _beside(point, facts) for point, facts in binaries.items())
        + sum(facts.code_bytes or 0.0 for facts in binaries.values())
    )


def _beside(point: BinaryPoint, facts: BinaryVisit) -> float:
    """Returns the bytes of a step's output that are not its input's, but for a step's few tokens; a move's are a
    cache's."""
    beside = 0.0 if point.larger else facts.output_bytes - facts.aliased_bytes
    return beside if beside > FEW_BYTES else 0.0


def estimated(plan: CompiledPlan, point: BinaryPoint, facts: BinaryVisit) -> Estimate | None:
    """None where the compiler tells no cycles."""
    from pytest_npubench.engines.binary_estimate import estimate

    if facts.cycles is None:
        return None
    return estimate(facts, plan.spec, plan.request(point).shape, point.phase, point.bucket)


def no_estimate(plan: CompiledPlan) -> str:
    """Why the compiler of the plan's family tells no times, in words."""
    from pytest_npubench.engines.binary_estimate import NO_CYCLES, NO_ESTIMATE

    return NO_CYCLES if plan.spec.family == INTEL else NO_ESTIMATE


def exact_metrics(step: str, figures: Sequence[tuple[str, str, float | None]]) -> tuple[Metric, ...]:
    """Of the figures (name, unit, value) those that the compiler told: they repeat exactly, so any change is one."""
    return tuple(
        Metric(name=f"{step}_{name}", unit=unit, value=value, gate="exact")
        for name, unit, value in figures
        if value is not None
    )
