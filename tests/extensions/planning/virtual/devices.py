"""A device of the simulator whose steps take what a test's own cost says."""

from __future__ import annotations

from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.extensions.planning.virtual.executor import VirtualExecutor
from pytest_npubench.extensions.planning.virtual.step_cost import StepCost


def device_of(shape: DecoderShape, cost: StepCost, *, kv_blocks: int, block_size_tokens: int) -> VirtualExecutor:
    return VirtualExecutor(
        shape,
        None,
        tensor_parallel=1,
        dtype="bf16",
        kv_capacity_tokens=kv_blocks * block_size_tokens,
        block_size_tokens=block_size_tokens,
        cost=cost,
    )
