"""Arrivals that an engine stamped itself, between two of its iterations: where they are taken to lie in others."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np
import pytest
from serving.runs import requests

from pytest_npubench.engines.shapes import decoder_shape
from pytest_npubench.extensions.planning.replicas import Replica, serve_replicas
from pytest_npubench.extensions.planning.virtual.calibrated import CalibratedCost
from pytest_npubench.extensions.planning.virtual.executor import VirtualExecutor
from pytest_npubench.serving.arrivals import load_of, poisson
from pytest_npubench.serving.request import ServingRequest
from pytest_npubench.serving.result import ServingResult
from pytest_npubench.serving.schedulers import make_scheduler

from .virtual.devices import device_of

SHAPE = decoder_shape("mistral-7b-v0.3")
KV_BLOCKS = 4096
Serve = Callable[..., tuple[ServingResult, list[float]]]


def device(fixed_s: float) -> VirtualExecutor:
    cost = CalibratedCost(num_layers=SHAPE.num_layers, fixed_s=fixed_s)
    return device_of(SHAPE, cost, kv_blocks=KV_BLOCKS, block_size_tokens=16)


def policy() -> Any:
    return make_scheduler("chunked", num_layers=SHAPE.num_layers, kv_blocks=KV_BLOCKS, block_size_tokens=16)


def by_one(load: list[ServingRequest], fixed_s: float, **how: bool) -> tuple[ServingResult, list[float]]:
    result = serve_replicas(load, [Replica(policy(), device(fixed_s))], is_asynchronous=True, **how)
    return result, list(result.log.start_s)


def by_two(load: list[ServingRequest], fixed_s: float, **how: bool) -> tuple[ServingResult, list[float]]:
    """In lock step; an iteration takes the same however much is in it."""
    replicas = [Replica(policy(), device(fixed_s)) for _ in range(2)]

    def together(plans: Any) -> Any:
        return [one.executor.run(plan) if plan else None for one, plan in zip(replicas, plans, strict=True)]

    result = serve_replicas(load, replicas, together=together, is_asynchronous=True, **how)
    return result, sorted(set(chain(*(one.log.start_s for one in replicas))))


@pytest.mark.parametrize(("stamp_s", "first_token_s"), [(1.4, 3.0), (1.6, 4.0)])
@pytest.mark.parametrize("served", [by_one, by_two])
def test_it_came_at_the_nearer_end(served: Serve, stamp_s: float, first_token_s: float) -> None:
    """Iterations of 1 s: at 1 s one starts, and the one from 2 to 3 s is planned; at 2 s the one from 3 to 4 s."""
    load = requests((0.0, 4, 9), (0.0, 4, 9), (stamp_s, 4, 1))
    result, _ = served(load, 1.0, is_stamped=True)
    assert result.records[-1].token_times_s[0] == pytest.approx(first_token_s)


@pytest.mark.parametrize("served", [by_one, by_two])
def test_of_iterations_that_are_simulated_a_little_longer(served: Serve) -> None:
    """By 3 %: TTFT is 3 % longer then. Taken as they stand, stamps make it half an iteration of two longer."""
    load = list(load_of(poisson(4.0, 300, 2), [(8, 40)] * 300))
    real, starts_s = served(load, 0.05)
    starts = np.array(starts_s)
    stamps = [one.arrival_s for one in load]
    for index, one in enumerate(load):
        later = starts[np.searchsorted(starts, one.arrival_s) :]
        if len(later) and later[0] - one.arrival_s < 0.05:
            stamps[index] = float(later[0])
    stamped = load_of(stamps, [(8, 40)] * 300)
    first_s = {record.id: record.token_times_s[0] for record in real.records}
    seen_s = np.mean([first_s[one.id] - one.arrival_s for one in stamped])
    found = {how: served(list(stamped), 0.05 * 1.03, is_stamped=how)[0] for how in (True, False)}
    longer = {how: np.mean([one.ttft_s for one in result.records]) / seen_s for how, result in found.items()}
    assert longer[True] == pytest.approx(1.03, abs=0.03)
    assert longer[False] > 1.15
