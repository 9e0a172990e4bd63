"""Binaries of buckets and of serving, made by the vendor's own compiler for a device that is not here: nothing runs."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from pytest_npubench.suites.protocol import Choice, Site, Suite

if TYPE_CHECKING:
    from pytest_npubench.backends.protocol import Runtime
    from pytest_npubench.campaign.protocol import Bench, CampaignPlan
    from pytest_npubench.core.hardware import HardwareSpec

FAMILIES = ("tpu", "cuda", "openvino")


class Compiled(Suite):
    name = "compiled"
    about = "binaries compiled for devices that are not here; runs only where it is asked for, as by -m compiled"
    report = "report"
    only_by_name = True

    def plans(self, spec: HardwareSpec, choice: Choice) -> Iterable[CampaignPlan]:
        from pytest_npubench.extensions.compilers.suites.compiled.plan import CompiledPlan
        from pytest_npubench.extensions.compilers.suites.compiled.serving import serving_binaries_plans
        from pytest_npubench.extensions.compilers.suites.programs import program_plans

        if spec.family in FAMILIES:
            yield from program_plans(CompiledPlan, spec, choice.profile)
        yield from serving_binaries_plans(spec, choice.profile)

    def bench(self, runtime: Runtime, plan: Any, site: Site) -> Bench[Any]:
        from pytest_npubench.extensions.compilers import npu_compiler
        from pytest_npubench.extensions.compilers.compiled import INTEL, compiler
        from pytest_npubench.extensions.compilers.compiled.runtime import CompilerRuntime
        from pytest_npubench.extensions.compilers.suites.compiled.plan import BinaryVisit
        from pytest_npubench.extensions.compilers.suites.compiler_bench import CompilerBench

        assert isinstance(runtime, CompilerRuntime)  # the engine's open() made it
        folder = site.folder / "compiled"
        return CompilerBench(
            runtime,
            folder,
            num_devices=plan.spec.tensor_parallel,
            start=partial(npu_compiler.npu_process, runtime.topology)
            if plan.spec.family == INTEL
            else partial(compiler.compiler_process, plan.spec, runtime.topology, folder),
            request=plan.request,
            visit=BinaryVisit.of,
        )


SUITE = Compiled()
