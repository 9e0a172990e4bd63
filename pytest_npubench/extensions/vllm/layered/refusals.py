"""What must hold before layered prefill starts in vLLM. Where it does not, tokens could be wrong: it is refused.

The scheduler and the worker both ask, since with one of them alone vLLM would run and answer nonsense. All reasons are
told at once, each with the flag that removes it.
"""

from __future__ import annotations

import re
from operator import attrgetter
from typing import Any, NamedTuple

from pytest_npubench.errors import ConfigError
from pytest_npubench.extensions.vllm.layered.settings import SCHEDULER, WORKER, LayeredSettings

LOWEST = (0, 32)
BEYOND = (0, 33)  # the classes overridden here are no public interface; read and run in 0.32.0

MODELS = ("LlamaModel", "MixtralModel", "OlmoeModel", "Qwen2Model", "Qwen2MoeModel", "Qwen3Model", "Qwen3MoeModel")
"""Whose forward is: embed, layer(positions, hidden_states, residual) for each layer, norm. Nothing between."""

ATTENTION_BACKENDS = ("CPU_ATTN", "FLASH_ATTN")
"""Whose metadata, built twice in an iteration, does not share buffers. FLASH_ATTN by reading, not by running."""


class _Rule(NamedTuple):
    path: str
    wanted: object
    how: str


_RULES = (
    _Rule("model_config.enforce_eager", True, "--enforce-eager"),
    _Rule("model_config.runner_type", "generate", "a model that generates text"),
    _Rule("model_config.is_multimodal_model", False, "a model of text alone"),
    _Rule("model_config.is_encoder_decoder", False, "a decoder"),
    _Rule("parallel_config.tensor_parallel_size", 1, "--tensor-parallel-size 1"),
    _Rule("parallel_config.pipeline_parallel_size", 1, "--pipeline-parallel-size 1"),
    _Rule("parallel_config.data_parallel_size", 1, "--data-parallel-size 1"),
    _Rule("parallel_config.prefill_context_parallel_size", 1, "--prefill-context-parallel-size 1"),
    _Rule("parallel_config.decode_context_parallel_size", 1, "--decode-context-parallel-size 1"),
    _Rule("parallel_config.use_ubatching", False, "no --enable-dbo"),
    _Rule("cache_config.enable_prefix_caching", False, "--no-enable-prefix-caching"),
    _Rule("cache_config.kv_sharing_fast_prefill", False, "no --kv-sharing-fast-prefill"),
    _Rule("scheduler_config.async_scheduling", False, "--no-async-scheduling"),
    _Rule("scheduler_config.policy", "fcfs", "--scheduling-policy fcfs"),
    _Rule("scheduler_config.long_prefill_token_threshold", 0, "--long-prefill-token-threshold 0"),
    _Rule("speculative_config", None, "no --speculative-config"),
    _Rule("lora_config", None, "no --enable-lora"),
    _Rule("kv_transfer_config", None, "no --kv-transfer-config"),
    _Rule("ec_transfer_config", None, "no --ec-transfer-config"),
    _Rule("use_v2_model_runner", False, "VLLM_USE_V2_MODEL_RUNNER=0 in the environment"),
    _Rule("parallel_config.worker_cls", WORKER, f"--worker-cls {WORKER}"),
)


def check_supported(config: Any, version: str) -> LayeredSettings:
    """Returns the settings of a VllmConfig that layered prefill can run. Raises ConfigError with every reason if it
    cannot."""
    check_layered_version(version)
    settings = LayeredSettings.of(config.additional_config)
    reasons = [_reason(config, rule) for rule in (*_RULES, _chunking_rule(settings))]
    reasons += [_scheduler_reason(config), _batch_reason(config, settings)]
    objections = [reason for reason in reasons if reason is not None]
    if objections:
        raise ConfigError("layered prefill in vLLM cannot start: " + "; ".join(objections))
    return settings


def check_layered_version(version: str) -> None:
    """Raises ConfigError outside [0.32, 0.33)."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None or not LOWEST <= tuple(map(int, numbers.groups())) < BEYOND:
        raise ConfigError(f"layered prefill in vLLM: version {version}; want vllm >= 0.32, < 0.33")


def supported_decoder(model: Any) -> Any:
    """Returns the part of a vLLM model that holds the layers. Raises ConfigError for a model whose forward was not
    read."""
    decoder = getattr(model, "model", None)
    name = type(decoder).__name__
    if name not in MODELS:
        raise ConfigError(
            f"layered prefill in vLLM: {type(model).__name__} has a {name}; want one of {', '.join(MODELS)}"
        )
    return decoder


def check_attention(attention_groups: Any) -> None:
    """Raises ConfigError for a backend whose metadata were not checked (vLLM's AttentionGroups by KV cache group)."""
    for group in (group for groups in attention_groups for group in groups):
        name = group.backend.get_name()
        if name not in ATTENTION_BACKENDS:
            want = ", ".join(ATTENTION_BACKENDS)
            raise ConfigError(f"layered prefill in vLLM: attention backend {name}; want {want} (--attention-backend)")
        if group.kernel_block_size is not None:
            raise ConfigError(
                f"layered prefill in vLLM: {name} splits its KV blocks of {group.kv_cache_spec.block_size} tokens into "
                f"{group.kernel_block_size}; want --block-size {group.kernel_block_size}"
            )


def _chunking_rule(settings: LayeredSettings) -> _Rule:
    how = "--enable-chunked-prefill" if settings.is_hybrid else "--no-enable-chunked-prefill, or a chunk_size_tokens"
    return _Rule("scheduler_config.enable_chunked_prefill", settings.is_hybrid, how)


def _reason(config: Any, rule: _Rule) -> str | None:
    value = attrgetter(rule.path)(config)
    return None if value == rule.wanted else f"{rule.path.rpartition('.')[2]} is {value!r}, want {rule.how}"


def _scheduler_reason(config: Any) -> str | None:
    given = config.scheduler_config.scheduler_cls
    name = f"{given.__module__}.{given.__qualname__}" if isinstance(given, type) else given
    return None if name == SCHEDULER else f"scheduler_cls is {name}, want --scheduler-cls {SCHEDULER}"


def _batch_reason(config: Any, settings: LayeredSettings) -> str | None:
    """Below this a prompt could wait for others to end, or a chunk would shrink while it is on its way."""
    scheduler = config.scheduler_config
    needed = settings.needed_batch_tokens(
        max_model_len=config.model_config.max_model_len, max_num_seqs=scheduler.max_num_seqs
    )
    given = min(
        scheduler.max_num_batched_tokens, scheduler.max_num_scheduled_tokens or scheduler.max_num_batched_tokens
    )
    return None if given >= needed else f"max_num_batched_tokens is {given}, want at least {needed}"
