"""Whatever could make tokens wrong is refused by name, with the flag that removes it. Configurations are stand-ins."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pytest_npubench.errors import ConfigError
from pytest_npubench.extensions.vllm.layered.refusals import (
    check_attention,
    check_layered_version,
    check_supported,
    supported_decoder,
)
from pytest_npubench.extensions.vllm.layered.settings import CONFIG_KEY, SCHEDULER, WORKER, LayeredSettings


def good_config() -> Any:
    """Of a VllmConfig, what is looked at."""
    return SimpleNamespace(
        model_config=SimpleNamespace(
            enforce_eager=True,
            runner_type="generate",
            is_multimodal_model=False,
            is_encoder_decoder=False,
            max_model_len=4096,
        ),
        parallel_config=SimpleNamespace(
            tensor_parallel_size=1,
            pipeline_parallel_size=1,
            data_parallel_size=1,
            prefill_context_parallel_size=1,
            decode_context_parallel_size=1,
            use_ubatching=False,
            worker_cls=WORKER,
        ),
        cache_config=SimpleNamespace(enable_prefix_caching=False, kv_sharing_fast_prefill=False),
        scheduler_config=SimpleNamespace(
            async_scheduling=False,
            policy="fcfs",
            long_prefill_token_threshold=0,
            enable_chunked_prefill=False,
            scheduler_cls=SCHEDULER,
            max_num_seqs=256,
            max_num_batched_tokens=8448,
            max_num_scheduled_tokens=None,
        ),
        speculative_config=None,
        lora_config=None,
        kv_transfer_config=None,
        ec_transfer_config=None,
        use_v2_model_runner=False,
        additional_config={CONFIG_KEY: {"tokens_per_iteration": 64}},
    )


def broken(path: str, value: Any) -> Any:
    config = good_config()
    *sections, name = path.split(".")
    holder = config
    for section in sections:
        holder = getattr(holder, section)
    setattr(holder, name, value)
    return config


def test_a_good_configuration_gives_its_settings() -> None:
    assert check_supported(good_config(), "0.32.0") == LayeredSettings(tokens_per_iteration=64)


@pytest.mark.parametrize(
    ("path", "value", "how"),
    [
        ("model_config.enforce_eager", False, "enforce_eager is False, want --enforce-eager"),
        ("model_config.runner_type", "pooling", "runner_type is 'pooling'"),
        ("model_config.is_multimodal_model", True, "a model of text alone"),
        ("model_config.is_encoder_decoder", True, "want a decoder"),
        ("parallel_config.tensor_parallel_size", 2, "want --tensor-parallel-size 1"),
        ("parallel_config.pipeline_parallel_size", 2, "want --pipeline-parallel-size 1"),
        ("parallel_config.data_parallel_size", 2, "want --data-parallel-size 1"),
        ("parallel_config.prefill_context_parallel_size", 2, "want --prefill-context-parallel-size 1"),
        ("parallel_config.decode_context_parallel_size", 2, "want --decode-context-parallel-size 1"),
        ("parallel_config.use_ubatching", True, "no --enable-dbo"),
        ("parallel_config.worker_cls", "auto", "want --worker-cls pytest_npubench"),
        ("cache_config.enable_prefix_caching", True, "want --no-enable-prefix-caching"),
        ("cache_config.kv_sharing_fast_prefill", True, "no --kv-sharing-fast-prefill"),
        ("scheduler_config.async_scheduling", True, "want --no-async-scheduling"),
        ("scheduler_config.policy", "priority", "want --scheduling-policy fcfs"),
        ("scheduler_config.long_prefill_token_threshold", 64, "want --long-prefill-token-threshold 0"),
        ("scheduler_config.enable_chunked_prefill", True, "want --no-enable-chunked-prefill"),
        ("scheduler_config.scheduler_cls", None, "scheduler_cls is None, want --scheduler-cls pytest_npubench"),
        ("scheduler_config.max_num_batched_tokens", 4096, "max_num_batched_tokens is 4096, want at least 4352"),
        ("scheduler_config.max_num_scheduled_tokens", 512, "max_num_batched_tokens is 512, want at least 4352"),
        ("speculative_config", object(), "no --speculative-config"),
        ("lora_config", object(), "no --enable-lora"),
        ("kv_transfer_config", object(), "no --kv-transfer-config"),
        ("ec_transfer_config", object(), "no --ec-transfer-config"),
        ("use_v2_model_runner", True, "VLLM_USE_V2_MODEL_RUNNER=0"),
        ("additional_config", {CONFIG_KEY: {"chunk_size_tokens": 64}}, "want --enable-chunked-prefill"),
    ],
)
def test_each_condition_is_refused_by_name(path: str, value: Any, how: str) -> None:
    with pytest.raises(ConfigError, match=how):
        check_supported(broken(path, value), "0.32.0")


def test_all_reasons_are_told_at_once() -> None:
    config = broken("model_config.enforce_eager", False)
    config.cache_config.enable_prefix_caching = True
    with pytest.raises(ConfigError, match=r"--enforce-eager; .*--no-enable-prefix-caching"):
        check_supported(config, "0.32.0")


def test_a_hybrid_chunk_needs_its_own_room() -> None:
    config = broken("additional_config", {CONFIG_KEY: {"chunk_size_tokens": 512}})
    config.scheduler_config.enable_chunked_prefill = True
    config.scheduler_config.max_num_batched_tokens = 512 + 256
    assert check_supported(config, "0.32.1").chunk_size_tokens == 512
    config.scheduler_config.max_num_batched_tokens -= 1
    with pytest.raises(ConfigError, match="767, want at least 768"):
        check_supported(config, "0.32.1")


@pytest.mark.parametrize("version", ["0.31.9", "0.33.0", "1.0", "dev"])
def test_other_versions_are_refused(version: str) -> None:
    with pytest.raises(ConfigError, match=f"version {version}; want vllm >= 0.32, < 0.33"):
        check_supported(good_config(), version)


@pytest.mark.parametrize("version", ["0.32.0", "0.32.1.dev3+cu129", "0.32.0rc1"])
def test_versions_inside_the_range_are_taken(version: str) -> None:
    check_layered_version(version)


def test_a_model_whose_forward_was_not_read_is_refused() -> None:
    class Qwen3MoeModel: ...

    class GemmaModel: ...

    decoder = Qwen3MoeModel()
    assert supported_decoder(SimpleNamespace(model=decoder)) is decoder
    with pytest.raises(ConfigError, match="has a GemmaModel; want one of LlamaModel"):
        supported_decoder(SimpleNamespace(model=GemmaModel()))
    with pytest.raises(ConfigError, match="has a NoneType"):
        supported_decoder(SimpleNamespace())


def attention_group(name: str, kernel_block_size: int | None = None) -> Any:
    return SimpleNamespace(
        backend=SimpleNamespace(get_name=lambda: name),
        kernel_block_size=kernel_block_size,
        kv_cache_spec=SimpleNamespace(block_size=256),
    )


def test_attention_backends_that_were_not_checked_are_refused() -> None:
    check_attention([[attention_group("CPU_ATTN")], [attention_group("FLASH_ATTN")]])
    with pytest.raises(ConfigError, match="attention backend FLASHINFER; want CPU_ATTN, FLASH_ATTN"):
        check_attention([[attention_group("CPU_ATTN"), attention_group("FLASHINFER")]])
    with pytest.raises(ConfigError, match="256 tokens into 64; want --block-size 64"):
        check_attention([[attention_group("FLASH_ATTN", 64)]])
