"""A chunked engine with room for larger chunks than it runs: its settings, and changing the chunk between runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_npubench.errors import ConfigError
from pytest_npubench.extensions.vllm.engine import VllmEngine
from pytest_npubench.extensions.vllm.settings import EngineSettings, environment, map_policy

SETTINGS = EngineSettings(
    model=Path("m"), policy="chunked", policy_settings=(("chunk_size_tokens", 64),), max_batch_size=32, room_tokens=1024
)


@pytest.fixture
def engine():
    """An engine without vLLM: its settings, and a scheduler that has the two limits."""
    scheduler = SimpleNamespace(max_num_scheduled_tokens=64, max_num_active_reqs=32)
    core = SimpleNamespace(engine_core=SimpleNamespace(scheduler=scheduler))

    def make(settings: EngineSettings):
        made = object.__new__(VllmEngine)
        made.settings, made._engine = settings, SimpleNamespace(engine_core=core)
        return made, scheduler

    return make


def test_the_room_is_the_batch_and_the_chunk_what_is_scheduled():
    arguments = map_policy(SETTINGS).arguments
    assert (arguments["max_num_batched_tokens"], arguments["max_num_scheduled_tokens"]) == (1024, 64)
    arguments = map_policy(replace(SETTINGS, room_tokens=None)).arguments
    assert arguments["max_num_batched_tokens"] == 64
    assert "max_num_scheduled_tokens" not in arguments
    with pytest.raises(ConfigError, match="room_tokens is 32; want at least the chunk's 64"):
        map_policy(replace(SETTINGS, room_tokens=32))


def test_a_chunk_is_changed_with_the_requests_that_it_lets_run(engine):
    made, scheduler = engine(SETTINGS)
    made.set_chunk(16)
    assert (scheduler.max_num_scheduled_tokens, scheduler.max_num_active_reqs) == (16, 16)
    made.set_chunk(1024)
    assert (scheduler.max_num_scheduled_tokens, scheduler.max_num_active_reqs) == (1024, 32)


@pytest.mark.parametrize(
    ("changes", "tokens"),
    [({}, 1025), ({}, 0), ({"room_tokens": None}, 64), ({"policy": "layered", "policy_settings": ()}, 64)],
)
def test_a_chunk_that_the_engine_has_no_room_for_is_refused(engine, changes, tokens):
    made, scheduler = engine(replace(SETTINGS, **changes))
    with pytest.raises(ConfigError, match=f"chunk_size_tokens {tokens} under "):
        made.set_chunk(tokens)
    assert scheduler.max_num_scheduled_tokens == 64


def test_an_engine_sees_the_devices_that_it_is_to_see():
    assert "CUDA_VISIBLE_DEVICES" not in environment(SETTINGS)
    assert environment(replace(SETTINGS, visible_devices="2"))["CUDA_VISIBLE_DEVICES"] == "2"
