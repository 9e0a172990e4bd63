"""Every scheduling policy gives the same fp32 tokens on this engine, preempted or not."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from pytest_npubench.engines.torch_moe import TorchExecutor  # noqa: E402
from pytest_npubench.serving.clock import WallClock  # noqa: E402
from pytest_npubench.serving.load import OpenLoad  # noqa: E402
from pytest_npubench.serving.loop import serve  # noqa: E402
from pytest_npubench.serving.request import ServingRequest  # noqa: E402
from pytest_npubench.serving.schedulers import make_scheduler  # noqa: E402

from .driving import whole  # noqa: E402
from .small_shapes import SHAPES  # noqa: E402

BLOCK_SIZE = 4
# those that run on one device, so that layers are cut and prompts chunked at these sizes
POLICIES: dict[str, dict[str, Any]] = {
    "static": {},
    "continuous": {},
    "chunked": {"chunk_size_tokens": 16},
    "layered": {"num_layer_groups": 2},
    "hybrid": {"num_layer_groups": 2, "chunk_size_tokens": 16},
}
_random = Random(0)
# all there at once, so that the plans are the same in every run
REQUESTS = tuple(
    ServingRequest(id=index, arrival_s=0.0, prompt_tokens=_random.randint(1, 40), output_tokens=_random.randint(1, 12))
    for index in range(14)
)


@cache
def alone(name: str) -> dict[int, tuple[int, ...]]:
    served = _engine(name, 26)
    return {item.id: tuple(whole(served, item.id, item.prompt_tokens, item.output_tokens)) for item in REQUESTS}


def _engine(name: str, num_blocks: int) -> Any:
    shape = next(shape for shape in SHAPES if shape.name == name)
    return TorchExecutor(shape, kv_capacity_tokens=num_blocks * BLOCK_SIZE, block_size_tokens=BLOCK_SIZE, seed=1)


@pytest.mark.parametrize("num_blocks", [200, 26], ids=["room", "preempted"])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_same_tokens(shape: Any, policy: str, num_blocks: int) -> None:
    scheduler = make_scheduler(
        policy,
        num_layers=shape.num_layers,
        kv_blocks=num_blocks,
        block_size_tokens=BLOCK_SIZE,
        **POLICIES[policy],
    )
    executor = _engine(shape.name, num_blocks)
    result = serve(OpenLoad(REQUESTS), scheduler, executor, WallClock())
    assert {record.id: record.tokens for record in result.records} == alone(shape.name)
    if policy in ("continuous", "layered") and num_blocks == 26:
        assert sum(record.num_preemptions for record in result.records) > 0
    assert (executor._kv.held_bytes, executor._hidden.num_bytes) == (0, 0)
