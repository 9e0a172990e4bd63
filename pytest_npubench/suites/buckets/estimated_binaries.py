"""What a compiler tells of the binaries that a run has just compiled, on record beside how long compiling took.

Only a compiler that tells cycles tells times: XLA's for TPUs. A hardware file names its clock for it ([compiler]).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_npubench.core.measurement import CompileRecord, Phase
from pytest_npubench.errors import NpubenchError
from pytest_npubench.predictors.profile import BucketProfile, BucketTiming

if TYPE_CHECKING:
    from pytest_npubench.engines.protocol import Engine
    from pytest_npubench.suites.buckets.plan import BucketPlan

BINARY = re.compile(r"(prefill|decode|move)-.*-(\d+)")
"""The name of a bucket's binary; a move's ends with the larger of its two."""


def estimated(records: Iterable[CompileRecord], engine: Engine, plan: BucketPlan) -> list[CompileRecord]:
    """Returns the records with the seconds that the compiler estimates, where it does."""
    return [replace(record, estimated_s=_estimated_s(record.name, engine, plan)) for record in records]


def estimated_profile(
    plan: BucketPlan, compiles: Sequence[CompileRecord], buckets: Sequence[int]
) -> tuple[BucketProfile | None, str]:
    """LENS's profile of these buckets from estimates alone; or None and why."""
    if _told_nowhere(plan):
        return None, "the compiler for this device tells no cycles, and operations that it counts are no time"
    return profile_of_estimates(
        compiles, buckets, batch_size=plan.batch_size, prefill_shared=plan.service.prefill_shared
    )


def profile_of_estimates(
    compiles: Sequence[CompileRecord], buckets: Sequence[int], *, batch_size: int, prefill_shared: bool = False
) -> tuple[BucketProfile | None, str]:
    """Makes a profile of what was compiled; or None, and why."""
    times = {
        (match[1], int(match[2])): record.estimated_s
        for record in compiles
        if record.estimated_s is not None and (match := BINARY.fullmatch(record.name))
    }
    wanted = [(phase.value, bucket) for bucket in buckets for phase in Phase]
    if missing := [f"{phase}-{bucket}" for phase, bucket in wanted if (phase, bucket) not in times]:
        return None, f"the compiler told no cycles of {len(missing)} of {len(wanted)} binaries, {missing[0]} first"
    moves = {bucket: times["move", bucket] for bucket in sorted(buckets)[1:] if ("move", bucket) in times}
    profile = BucketProfile(
        buckets={
            bucket: BucketTiming(ttft_s=times[Phase.PREFILL.value, bucket], tbt_s=times[Phase.DECODE.value, bucket])
            for bucket in buckets
        },
        batch_size=batch_size,
        prefill_shared=prefill_shared,
        transitions_s=moves if len(moves) == len(buckets) - 1 and moves else None,
    )
    return profile, ""


def _estimated_s(name: str, engine: Engine, plan: BucketPlan) -> float | None:
    match = BINARY.fullmatch(name)
    if match is None or _told_nowhere(plan):
        return None
    from pytest_npubench.engines.binary_estimate import estimate
    from pytest_npubench.engines.hlo import parse
    from pytest_npubench.engines.shapes import dense_shape

    try:
        total = parse(engine.module(name)).total
    except (NpubenchError, ValueError):  # it concerns a rival alone, which then says that there is none
        return None
    phase = Phase.PREFILL if match[1] == Phase.PREFILL.value else Phase.DECODE
    estimated_binary = estimate(total, plan.spec, dense_shape(plan.model), phase, int(match[2]))
    return estimated_binary.total_s if total.cycles else None


def _told_nowhere(plan: BucketPlan) -> bool:
    return plan.spec.compiler is None or plan.spec.compiler.clock is None
