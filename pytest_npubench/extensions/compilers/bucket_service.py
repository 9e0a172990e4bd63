"""The bucket suite on a compiler: the cases and ids are those of the device, their campaigns and digests are not, so
that nothing compiled is ever held against a measurement."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npubench.extensions.compilers.buckets.plan import INTEL, QUALCOMM, CompiledPlan
from pytest_npubench.suites.buckets.plan import BucketPlan, BucketService

if TYPE_CHECKING:
    from pytest_npubench.backends.protocol import Runtime
    from pytest_npubench.campaign.protocol import Bench, CaseKind

NUM_ROUNDS = 1  # a compiler says the same each time


class CompiledBuckets(BucketService):
    fills_memory = False  # what a compiler counts takes the place of what shapes tell

    def plan(self, plan: BucketPlan) -> BucketPlan:
        given = {one.name: getattr(plan, one.name) for one in fields(plan)}
        size = replace(plan.size, min_rounds=NUM_ROUNDS, max_rounds=NUM_ROUNDS)
        return _plan_class(plan.spec.family)(**{**given, "size": size, "active_band": None})

    def kind_for(self, plan: BucketPlan, kind: CaseKind[Any]) -> CaseKind[Any]:
        if plan.spec.family == QUALCOMM:
            from pytest_npubench.extensions.compilers.htp.kinds import htp_kind_for

            return htp_kind_for(kind)
        from pytest_npubench.extensions.compilers.buckets.kinds import kind_for

        return kind_for(kind)

    def bench(self, runtime: Runtime, plan: BucketPlan, folder: Path) -> Bench[Any]:
        from pytest_npubench.extensions.compilers.buckets.bench import CompilerBench
        from pytest_npubench.extensions.compilers.compiled.runtime import CompilerRuntime

        assert isinstance(runtime, CompilerRuntime)  # the engine's open() made it
        assert isinstance(plan, CompiledPlan)  # plan() made it
        if plan.spec.family == QUALCOMM:
            from pytest_npubench.extensions.compilers.htp.bench import HtpBench

            return HtpBench(runtime, plan, folder / "compiled")
        if plan.spec.family == INTEL:
            from pytest_npubench.extensions.compilers.buckets.npu import NpuBench

            return NpuBench(runtime, plan, folder / "compiled")
        return CompilerBench(runtime, plan, folder / "compiled")


def _plan_class(family: str) -> type[CompiledPlan]:
    if family == QUALCOMM:
        from pytest_npubench.extensions.compilers.htp.plan import HtpPlan

        return HtpPlan
    if family == INTEL:
        from pytest_npubench.extensions.compilers.buckets.npu import NpuPlan

        return NpuPlan
    return CompiledPlan
