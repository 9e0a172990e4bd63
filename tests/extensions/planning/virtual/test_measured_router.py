"""Experts of a batch as iterations showed them: by hand, and those of a synthetic router found again."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_npubench.engines.shapes import decoder_shape
from pytest_npubench.extensions.planning.virtual.calibrated import CalibratedCost
from pytest_npubench.extensions.planning.virtual.executor import VirtualExecutor
from pytest_npubench.extensions.planning.virtual.measured_router import MeasuredRouter
from pytest_npubench.serving.arrivals import load_of, poisson
from pytest_npubench.serving.clock import VirtualClock
from pytest_npubench.serving.iteration import PrefillRow
from pytest_npubench.serving.load import OpenLoad
from pytest_npubench.serving.log import IterationLog
from pytest_npubench.serving.loop import serve
from pytest_npubench.serving.schedulers import make_scheduler

SHAPE = decoder_shape("small-moe")
COST = CalibratedCost(num_layers=8, fixed_s=2e-3, row_s=1e-4, activation_s=1e-4, has_experts=True)


def log_of(policy: str, router: MeasuredRouter | None = None) -> IterationLog:
    random = np.random.default_rng(3)
    lengths = [(int(random.integers(20, 300)), int(random.integers(2, 60))) for _ in range(40)]
    executor = VirtualExecutor(
        SHAPE, None, tensor_parallel=1, dtype="fp32", kv_capacity_tokens=16_384, cost=COST, router=router
    )
    work = {"chunk_size_tokens": 64} if policy == "chunked" else {"tokens_per_iteration": 64}
    scheduler = make_scheduler(policy, num_layers=8, kv_blocks=1024, block_size_tokens=16, **work)
    return serve(OpenLoad(load_of(poisson(10.0, 40, 3), lengths)), scheduler, executor, VirtualClock()).log


def test_by_hand() -> None:
    log = IterationLog()
    rows = {"num_decode": [1, 0, 1], "num_prefill_tokens": [0, 64, 63], "num_prefill_layers": [0, 8, 4]}
    log.extend({**rows, "expert_activations": [8, 40, 4 * 1 + 4 * 5], "start_s": [0, 1, 2], "end_s": [1, 2, 3]})
    router = MeasuredRouter.of([log], 8)
    assert router.activations(0, 0, 8, 1, ()) == 8
    assert router.activations(7, 2, 4, 1, [PrefillRow(0, 0, 63)]) == 2 * 5
    assert router.activations(0, 0, 8, 500, ()) == 40  # nothing is known beyond


@pytest.mark.parametrize("policy", ["chunked", "layered"])
def test_what_chunked_prefill_showed_is_what_others_activate(policy: str) -> None:
    """Of the synthetic router, whose prompts are more alike than its decode batches: a few percent are left."""
    router = MeasuredRouter.of([log_of("chunked"), log_of("layered")], SHAPE.num_layers)
    real, again = sum(log_of(policy).expert_activations), sum(log_of(policy, router).expert_activations)
    assert again == pytest.approx(real, rel=0.05)
