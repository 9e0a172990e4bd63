"""What a campaign compiles for an Intel NPU: prefill and decode of each bucket. The host moves caches, so no binary
does. What the compiler tells is fewer figures than of the others: neither cycles nor temporaries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_npubench.extensions.compilers.buckets.bench import CompilerBench
from pytest_npubench.extensions.compilers.buckets.plan import BinaryPoint, CompiledPlan
from pytest_npubench.extensions.compilers.npu_compiler import npu_process
from pytest_npubench.processes.child import Child


@dataclass(frozen=True, slots=True, kw_only=True)
class NpuPlan(CompiledPlan):
    def binaries(self, buckets: Sequence[int]) -> tuple[BinaryPoint, ...]:
        return self.steps(buckets)


class NpuBench(CompilerBench):
    def _process(self) -> Child:
        return npu_process(self._runtime.topology, self._memory_bytes)
