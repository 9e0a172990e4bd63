"""Policies as vLLM's settings, room for larger chunks, and what is refused before vLLM is asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from engines.written_shapes import DENSE, MOE

from pytest_npubench.errors import ConfigError
from pytest_npubench.extensions.vllm.engine import VllmEngine
from pytest_npubench.extensions.vllm.settings import (
    EngineSettings,
    UnsupportedPolicyError,
    engine_arguments,
    environment,
    map_policy,
)


def settings(policy: str = "chunked", model: Path = Path("unread"), **others: Any) -> EngineSettings:
    chosen = tuple(others.pop("chosen", {}).items())
    return EngineSettings(model=model, policy=policy, policy_settings=chosen, **others)


def test_chunked() -> None:
    mapping = map_policy(settings(chosen={"chunk_size_tokens": 512}, max_batch_size=32))
    assert mapping.arguments == {"max_num_batched_tokens": 512, "enable_chunked_prefill": True, "max_num_seqs": 32}
    assert str(mapping) == (
        "chunked: max_num_batched_tokens=512, enable_chunked_prefill=True, max_num_seqs=32 (decode tokens count inside "
        "the chunk)"
    )


def test_a_chunk_smaller_than_the_batch() -> None:
    """vLLM refuses max_num_seqs above max_num_batched_tokens; the smaller batch is said."""
    mapping = map_policy(settings(chosen={"chunk_size_tokens": 64}, max_batch_size=256))
    assert mapping.arguments["max_num_seqs"] == 64
    assert "64 requests run at most, not 256" in str(mapping)


def test_continuous_never_binds() -> None:
    mapping = map_policy(settings("continuous", max_batch_size=256, kv_capacity_tokens=128, block_size_tokens=16))
    assert mapping.arguments["enable_chunked_prefill"] is False
    assert mapping.arguments["max_num_batched_tokens"] == 256


@pytest.mark.parametrize(
    ("policy", "others", "reason"),
    [
        ("static", {}, "join a running batch"),
        ("disaggregated", {}, "KV connector"),
        ("fair", {}, "no such policy; it serves chunked, continuous"),
        ("chunked", {"chosen": {"decode_counts": False}}, "counts decode tokens"),
        ("continuous", {"chosen": {"max_prefill_tokens": 512}}, "no limit on prompt tokens"),
        ("continuous", {"chosen": {"batch_size": 4}}, "no setting for batch_size"),
        ("layered", {"chosen": {"chunk_size_tokens": 512}}, "no setting for chunk_size_tokens"),
        ("layered", {"chosen": {"batch_size": 5}}, "no setting for batch_size"),
        ("layered", {"eager": False}, "vLLM wants eager, tensor_parallel 1"),
        ("hybrid", {"tensor_parallel": 2}, "vLLM wants eager, tensor_parallel 1"),
        ("layered", {"async_scheduling": True}, "async_scheduling off"),
    ],
)
def test_what_vllm_has_not_and_what_layered_cannot_run_under(policy: str, others: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnsupportedPolicyError, match=reason):
        map_policy(settings(policy, **others))


@pytest.mark.parametrize("chunk", [0, -1, None, "512"])
def test_a_chunk_that_cannot_be(chunk: Any) -> None:
    with pytest.raises(ConfigError, match="chunk_size_tokens is"):
        map_policy(settings(chosen={"chunk_size_tokens": chunk}))


@pytest.mark.parametrize(
    ("others", "reason"),
    [
        ({"dtype": "int8"}, "dtype 'int8'"),
        ({"kv_capacity_tokens": 100}, "multiple of block_size_tokens"),
        ({"max_model_tokens": 8193}, "max_model_tokens is 8193; want at most"),
        ({"max_batch_size": 0}, "max_batch_size is 0"),
    ],
)
def test_numbers_that_cannot_be(directories: dict[str, Path], others: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        engine_arguments(settings(model=directories[MOE.name], **others))


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere: no such model directory"):
        engine_arguments(settings(model=tmp_path / "nowhere"))


def test_a_directory_without_weights(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"no \*\.safetensors in it"):
        engine_arguments(settings(model=tmp_path))


def test_bytes_of_the_cache(directories: dict[str, Path]) -> None:
    """2 x 4 layers x 2 heads x 32 x 4 bytes are 2,048 a token; one block of vLLM's own comes on top."""
    arguments = engine_arguments(settings(model=directories[DENSE.name], kv_capacity_tokens=1024))
    assert arguments["kv_cache_memory_bytes"] == (1024 + 32) * 2048


def test_no_network_and_one_process() -> None:
    wanted = environment(settings())
    assert wanted["HF_HUB_OFFLINE"] == "1"
    assert wanted["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"


def test_layered_and_hybrid_are_our_scheduler() -> None:
    layered = map_policy(settings("layered", chosen={"tokens_per_iteration": 64, "merge_cap_tokens": 1024}))
    assert layered.arguments["scheduler_cls"].endswith("LayeredScheduler")
    assert layered.arguments["additional_config"]["npubench_layered"]["chunk_size_tokens"] is None
    assert layered.environment["VLLM_USE_V2_MODEL_RUNNER"] == "0"
    hybrid = map_policy(settings("hybrid", chosen={"tokens_per_iteration": 64}))
    assert hybrid.arguments["additional_config"]["npubench_layered"]["chunk_size_tokens"] == 8192


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
