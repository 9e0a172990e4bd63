"""Requests that come and go on slots get the tokens that each gets alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engines.conftest import Served

from pytest_npubench.core.measurement import Request
from pytest_npubench.engines.request_batch import random_prompts
from pytest_npubench.extensions.planning.slots import SlotExecutor, serve_slots
from pytest_npubench.serving.clock import WallClock
from pytest_npubench.serving.request import ServingRequest

LENGTHS = ((5, 6), (20, 4), (3, 12), (9, 9), (30, 2), (1, 1), (6, 20))


def test_tokens_are_those_of_each_request_alone(serve: Callable[[str], Served]) -> None:
    engine: Any = serve("tied").engine
    engine.load_slots()
    requests = [
        ServingRequest(id=index, arrival_s=0.002 * index, prompt_tokens=prompt, output_tokens=output)
        for index, (prompt, output) in enumerate(LENGTHS)
    ]
    num_compiled = len(engine.compiles)
    served = serve_slots(requests, SlotExecutor(engine, requests), WallClock())
    assert len(engine.compiles) == num_compiled
    for record, (prompt, output) in zip(served.records, LENGTHS, strict=True):
        wanted = Request(input_tokens=prompt, output_tokens=output)
        alone = engine.generate(random_prompts((wanted,), engine.shape.vocab_size, seed=record.id), [output])
        assert record.tokens == alone.tokens[0]
