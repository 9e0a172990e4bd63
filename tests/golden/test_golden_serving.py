"""What policies decide and what it costs, on a virtual clock: one hash of every column of the log and every metric.

The simulator takes iterations that only decode at once, the loop of a measured run takes them one by one. Both give the
same run, so both are held to one hash. A change of it is meant, or is a fault.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator

import pytest

from pytest_npubench.engines.shapes import decoder_shape
from pytest_npubench.serving.arrivals import load_of, poisson
from pytest_npubench.serving.clock import VirtualClock
from pytest_npubench.serving.load import OpenLoad
from pytest_npubench.serving.loop import serve
from pytest_npubench.serving.metrics import Slo, summarize
from pytest_npubench.serving.request import ServingRequest
from pytest_npubench.serving.result import ServingResult
from pytest_npubench.serving.schedulers import make_scheduler

POLICIES = ("static", "continuous", "chunked", "layered", "hybrid")
RATES_PER_S = (2.0, 40.0)
BLOCK_SIZE_TOKENS, KV_BLOCKS = 16, 120  # few enough for preemptions at the higher rate
SHAPE = decoder_shape("small-moe")
DIGEST = "36908d9b03e874d7"

Serve = Callable[[tuple[ServingRequest, ...], str], ServingResult]


def parts(policy: str):  # type: ignore[no-untyped-def]
    calibrated = pytest.importorskip("pytest_npubench.extensions.planning.virtual.calibrated")
    executor = pytest.importorskip("pytest_npubench.extensions.planning.virtual.executor")
    cost = calibrated.CalibratedCost(
        num_layers=SHAPE.num_layers,
        fixed_s=2e-3,
        weights_s=4e-3,
        row_s=3e-4,
        context_s=1e-5,
        activation_s=2e-6,
        has_experts=True,
    )
    scheduler = make_scheduler(
        policy, num_layers=SHAPE.num_layers, kv_blocks=KV_BLOCKS, block_size_tokens=BLOCK_SIZE_TOKENS
    )
    return scheduler, executor.VirtualExecutor(
        SHAPE,
        None,
        tensor_parallel=1,
        dtype="bf16",
        kv_capacity_tokens=KV_BLOCKS * BLOCK_SIZE_TOKENS,
        block_size_tokens=BLOCK_SIZE_TOKENS,
        cost=cost,
    )


def one_by_one(load: tuple[ServingRequest, ...], policy: str) -> ServingResult:
    return serve(OpenLoad(load), *parts(policy), VirtualClock())


def at_once(load: tuple[ServingRequest, ...], policy: str) -> ServingResult:
    replicas = pytest.importorskip("pytest_npubench.extensions.planning.replicas")
    result: ServingResult = replicas.serve_replicas(load, [replicas.Replica(*parts(policy))])
    return result


@pytest.mark.parametrize("served", [one_by_one, at_once])
def test_runs_are_those_that_were(served: Serve) -> None:
    results = [served(load_at(rate_per_s), policy) for policy in POLICIES for rate_per_s in RATES_PER_S]
    assert any(record.num_preemptions for result in results for record in result.records)
    text = json.dumps([list(figures(result)) for result in results])
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == DIGEST


def load_at(rate_per_s: float) -> tuple[ServingRequest, ...]:
    lengths = [(40 + 97 * number % 500, 5 + 31 * number % 120) for number in range(40)]
    return tuple(load_of(poisson(rate_per_s, len(lengths), seed=7), lengths))


def figures(result: ServingResult) -> Iterator[list[object]]:
    """Every column and every metric, the numbers to six digits: what two orders of adding up leave the same."""
    for name, column in result.log.columns().items():
        yield [name, *map(digits, column)]
    for metric in summarize(result, Slo(ttft_s=0.5, tbt_s=0.05), num_experts=SHAPE.num_experts):
        yield [metric.name, digits(metric.value)]


def digits(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.6g}"
