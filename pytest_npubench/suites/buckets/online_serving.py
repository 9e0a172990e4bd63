"""How requests are served on slots, the same on the engine and on the virtual clock: between two decode steps of all
running requests one waiting prompt is prefilled."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_npubench.serving.clock import Clock
from pytest_npubench.serving.iteration import Executor
from pytest_npubench.serving.load import OpenLoad
from pytest_npubench.serving.loop import serve
from pytest_npubench.serving.request import ServingRequest
from pytest_npubench.serving.result import ServingResult
from pytest_npubench.serving.schedulers import make_scheduler


def serve_slots(requests: Sequence[ServingRequest], executor: Executor, clock: Clock) -> ServingResult:
    """Each slot is one block of the executor's KV cache. Raises as serving.loop.serve."""
    num_slots = executor.kv_capacity_tokens // executor.block_size_tokens
    scheduler = make_scheduler(
        "continuous",
        num_layers=executor.num_layers,
        kv_blocks=num_slots,
        block_size_tokens=executor.block_size_tokens,
        max_batch_size=num_slots,
        max_prefill_tokens=1,  # the first prompt of an iteration is taken whatever its length
    )
    return serve(OpenLoad(requests), scheduler, executor, clock)
