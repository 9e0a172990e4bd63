"""What cases say of binaries: their details, estimated seconds, and what an engine with them needs of the memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_npubench.core.measurement import Phase
from pytest_npubench.extensions.compilers.compiled import INTEL
from pytest_npubench.extensions.compilers.suites.compiled.plan import BinaryPoint, BinaryVisit, CompiledPlan
from pytest_npubench.verdict.result import Metric

if TYPE_CHECKING:
    from pytest_npubench.engines.binary_estimate import Estimate

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
    largest temporary; room_bytes: the device's memory, None where the hardware file has none. A prediction has its
    estimates of whole batches instead."""

    bucket: int | None = None
    steps: Mapping[str, StepDetail] | None = None
    need_bytes: float | None = None
    room_bytes: float | None = None
    estimated_s: tuple[float, ...] = ()


def need_bytes(binaries: Binaries) -> float:
    """Of each device with all of these binaries loaded: weights once, the caches of every bucket, all code, and the
    largest temporary, since steps run one after the other."""
    steps = {point: facts for point, facts in binaries.items() if point.larger is None}
    decodes = [facts for point, facts in steps.items() if point.phase is Phase.DECODE]
    weights = max(facts.argument_bytes - facts.donated_bytes for facts in steps.values())
    return (
        weights
        + sum(facts.donated_bytes for facts in decodes)
        + max(facts.temporary_bytes or 0.0 for facts in binaries.values())
        + sum(facts.code_bytes or 0.0 for facts in binaries.values())
    )


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
