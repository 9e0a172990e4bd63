"""Compiles the graphs of a campaign by Qualcomm's compiler."""

from __future__ import annotations

from pathlib import Path

from pytest_npubench.extensions.compilers.compiled.runtime import CompilerRuntime
from pytest_npubench.extensions.compilers.qnn.compiler import htp_process
from pytest_npubench.extensions.compilers.suites.compiler_bench import CompilerBench
from pytest_npubench.extensions.compilers.suites.graphs.htp_plan import HtpPlan, HtpPoint, HtpVisit


def htp_bench(runtime: CompilerRuntime, plan: HtpPlan, folder: Path) -> CompilerBench[HtpPoint]:
    """The whole decoder is compiled alone: its compiler takes six times the weights."""
    return CompilerBench(
        runtime,
        folder,
        num_devices=plan.spec.tensor_parallel,
        start=lambda memory_bytes: htp_process(runtime.topology, memory_bytes),
        request=plan.graph,
        visit=HtpVisit.of,
        alone=(plan.whole,),
    )
