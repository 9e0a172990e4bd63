"""Policies as vLLM's settings, and what is refused before vLLM is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engines.written_shapes import DENSE, MOE

from pytest_npubench.errors import ConfigError
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
    ("policy", "chosen", "reason"),
    [
        ("static", {}, "join a running batch"),
        ("disaggregated", {}, "KV connector"),
        ("fair", {}, "no such policy; it serves chunked, continuous"),
        ("chunked", {"decode_counts": False}, "counts decode tokens"),
        ("continuous", {"max_prefill_tokens": 512}, "no limit on prompt tokens"),
        ("continuous", {"batch_size": 4}, "no setting for batch_size"),
    ],
)
def test_what_vllm_has_not(policy: str, chosen: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnsupportedPolicyError, match=reason):
        map_policy(settings(policy, chosen=chosen))


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


@pytest.mark.parametrize(
    ("policy", "others", "reason"),
    [
        ("layered", {"chosen": {"chunk_size_tokens": 512}}, "no setting for chunk_size_tokens"),
        ("layered", {"chosen": {"batch_size": 5}}, "no setting for batch_size"),
        ("layered", {"eager": False}, "vLLM wants eager, tensor_parallel 1"),
        ("hybrid", {"tensor_parallel": 2}, "vLLM wants eager, tensor_parallel 1"),
        ("layered", {"async_scheduling": True}, "async_scheduling off"),
    ],
)
def test_what_layered_cannot_run_under(policy: str, others: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnsupportedPolicyError, match=reason):
        map_policy(settings(policy, **others))
