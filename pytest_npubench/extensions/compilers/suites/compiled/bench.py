"""Compiles the binaries of a campaign, each by the compiler of its device's family."""

from __future__ import annotations

from pathlib import Path

from pytest_npubench.extensions.compilers.compiled import INTEL
from pytest_npubench.extensions.compilers.compiled.compiler import compiler_process
from pytest_npubench.extensions.compilers.compiled.runtime import CompilerRuntime
from pytest_npubench.extensions.compilers.npu_compiler import npu_process
from pytest_npubench.extensions.compilers.suites.compiled.plan import BinaryPoint, BinaryVisit, CompiledPlan
from pytest_npubench.extensions.compilers.suites.compiler_bench import CompilerBench
from pytest_npubench.processes.child import Child


def binary_bench(runtime: CompilerRuntime, plan: CompiledPlan, folder: Path) -> CompilerBench[BinaryPoint]:
    """Of Intel's NPUs the compiler tells fewer figures than of the others: neither cycles nor temporaries."""

    def start(memory_bytes: int) -> Child:
        if plan.spec.family == INTEL:
            return npu_process(runtime.topology, memory_bytes)
        return compiler_process(plan.spec, runtime.topology, folder, memory_bytes)

    return CompilerBench(
        runtime,
        folder,
        num_devices=plan.spec.tensor_parallel,
        start=start,
        request=plan.request,
        visit=BinaryVisit.of,
    )
