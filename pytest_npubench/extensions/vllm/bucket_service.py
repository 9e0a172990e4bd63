"""vLLM as the engine of a bucket campaign: one process from its first point to its last, on a directory of the shape.

The policy is continuous, so that the prompts of a batch are prefilled together and nothing joins it later. The cache
holds a whole batch of the longest requests: nothing waits for room and nothing is preempted.

Worked example: batches of 2 and buckets up to 2048: a request may have 2048 tokens in the cache and one more that is
not, 2049, in blocks of 32 that is 2080; the cache holds 4160.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pytest_npubench.backends.protocol import Runtime
from pytest_npubench.core.families import declared
from pytest_npubench.engines import shapes
from pytest_npubench.engines.model_directory import write_model_directory
from pytest_npubench.engines.protocol import Engine
from pytest_npubench.extensions.vllm.answer import VllmRequest, VllmRun
from pytest_npubench.extensions.vllm.bucket_engine import VllmBucketEngine
from pytest_npubench.extensions.vllm.buckets import DeclaredBuckets, planned_buckets, prompt_buckets
from pytest_npubench.extensions.vllm.process import VllmProcess, VllmProcesses
from pytest_npubench.extensions.vllm.runtime import VllmRuntime
from pytest_npubench.extensions.vllm.settings import EngineSettings
from pytest_npubench.extensions.vllm.written_weights import WrittenWeights
from pytest_npubench.suites.buckets.plan import BucketPlan
from pytest_npubench.suites.buckets.service import BucketService

BLOCK_TOKENS = 32


class BucketServer:
    """The one engine of a campaign, started here, and anew where it was lost: what was under way then has failed."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._engines = VllmProcesses(most=1)
        self.declared: tuple[DeclaredBuckets, ...] = self._engine.declared()

    @property
    def _engine(self) -> VllmProcess:
        return self._engines.get(self._settings)

    def serve(self, requests: Sequence[VllmRequest]) -> VllmRun:
        return self._engine.serve(requests)

    def load(self, kernel: str) -> None:
        """Raises MeasurementError where the canary kernel cannot be had there."""
        self._engine.time_canary(kernel)

    def time(self, kernel: str) -> float:
        """Returns seconds of one call of a canary kernel, by the clock of vLLM's process."""
        return self._engine.time_canary(kernel)

    def close(self) -> None:
        self._engines.close()


class VllmBuckets(BucketService):
    """vLLM pads as it will, if at all; its cache is paged, and sized by itself."""

    finished = "drop"
    pads_as_it_will = True
    compiles_buckets = False
    moves_cache = False
    fills_memory = False
    pads_decode = False
    tells_answers = True

    def buckets(self, family: str, buckets: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the buckets, with the smaller ones that vLLM pads to."""
        return planned_buckets(family, buckets)

    def has_canaries(self, family: str) -> bool:
        """They run in vLLM's own process, in torch: not where torch has no such device."""
        return declared(family).has_torch

    def engine(self, runtime: Runtime, plan: BucketPlan, folder: Path) -> Engine:
        assert isinstance(runtime, VllmRuntime)  # the descriptor opened it
        return start_bucket_engine(plan, folder, runtime.visible_devices)


def start_bucket_engine(plan: BucketPlan, folder: Path, visible_devices: str | None = None) -> VllmBucketEngine:
    """Starts vLLM on these devices (CUDA_VISIBLE_DEVICES; None: what this process sees). Raises what VllmProcess and
    write_model_directory raise."""
    shape = shapes.dense_shape(plan.model)
    server = BucketServer(replace(engine_settings(plan, folder), visible_devices=visible_devices))
    return VllmBucketEngine(
        server,
        vocab_size=shape.vocab_size,
        batch_size=plan.batch_size,
        buckets=plan.buckets,
        declared=prompt_buckets(server.declared, plan.buckets[-1]),
        canaries=server,
        weights=WrittenWeights(shape, plan.spec.dtype),
    )


def engine_settings(plan: BucketPlan, folder: Path) -> EngineSettings:
    """Writes the model directory below `folder` where it is not there yet."""
    shape, dtype = shapes.dense_shape(plan.model), plan.spec.dtype
    longest = -(-(plan.buckets[-1] + 1) // BLOCK_TOKENS) * BLOCK_TOKENS
    return EngineSettings(
        model=write_model_directory(folder / "models" / f"{plan.model}-{dtype}", shape, dtype=dtype, is_ours=True),
        policy="continuous",
        policy_settings=(),
        dtype=dtype,
        max_batch_size=plan.batch_size,
        kv_capacity_tokens=plan.batch_size * longest,
        block_size_tokens=BLOCK_TOKENS,
        max_model_tokens=longest,
        tensor_parallel=plan.spec.tensor_parallel,
    )
