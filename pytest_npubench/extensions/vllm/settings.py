"""Our policies as vLLM's settings, as data that can be printed. What vLLM cannot do is refused with the reason.

    chunked(c)    max_num_batched_tokens = c, enable_chunked_prefill on. vLLM counts decode tokens inside c, and lets no
                  more requests run than c, since each needs a token of it: max_num_seqs = min(max_batch_size, c)
    continuous    enable_chunked_prefill off, max_num_batched_tokens so large that it never binds
    layered, hybrid   a scheduler and a worker of ours in stock vLLM (extensions/vllm/layered)
    static, disaggregated   not in one stock vLLM

Worked example: chunked with chunk_size_tokens 64 and max_batch_size 256 is max_num_batched_tokens=64,
max_num_seqs=64, enable_chunked_prefill=True.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_npubench.engines.hf_config import TORCH_DTYPE
from pytest_npubench.engines.model_directory import check_model_directory, kv_bytes_per_token
from pytest_npubench.errors import ConfigError

HYBRID_CHUNK_TOKENS = 8192  # Layered Prefill, section 4.3
DTYPE_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
Chosen = Mapping[str, object]


class UnsupportedPolicyError(ConfigError):
    """A policy, or a setting of one, that vLLM does not have; a case skips with its text as the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """One engine: a model directory under one policy. policy_settings are those of serving's scheduler of that name.

    kv_capacity_tokens is a multiple of block_size_tokens; on x86 CPUs vLLM's faster attention wants blocks of a
    multiple of 32. max_model_tokens: the longest request, prompt and answer; None: what the cache holds. eager: no
    compilation and no CUDA graphs, which counting experts needs. async_scheduling overlaps an iteration's scheduling
    with the one before; without it iterations are what they seem, and layered prefill needs that. room_tokens: a
    chunked engine that can change its chunk up to that many tokens, since starting one for each takes half a minute;
    None: the one chunk. visible_devices: CUDA_VISIBLE_DEVICES of the engine; None: as it is here.
    """

    model: Path
    policy: str = "chunked"
    policy_settings: tuple[tuple[str, int | bool | None], ...] = (("chunk_size_tokens", 2048),)
    dtype: str = "fp32"
    max_batch_size: int = 32
    kv_capacity_tokens: int = 8192
    block_size_tokens: int = 32
    max_model_tokens: int | None = None
    tensor_parallel: int = 1
    seed: int = 0
    eager: bool = True
    async_scheduling: bool = False
    room_tokens: int | None = None
    visible_devices: str | None = None

    @property
    def longest_request(self) -> int:
        return self.kv_capacity_tokens if self.max_model_tokens is None else self.max_model_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyMapping:
    """vLLM's arguments and environment for a policy; notes say where it differs from the policy's name elsewhere."""

    policy: str
    arguments: Mapping[str, Any]
    environment: Mapping[str, str]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """One line: "chunked: max_num_batched_tokens=64, ... (decode tokens count)"."""
        shown = ", ".join(f"{name}={value}" for name, value in {**self.arguments, **self.environment}.items())
        return f"{self.policy}: {shown}" + (f" ({'; '.join(self.notes)})" if self.notes else "")


def map_policy(settings: EngineSettings) -> PolicyMapping:
    """Raises UnsupportedPolicyError with the reason, ConfigError for a number that cannot be."""
    mapping = _MAPPINGS.get(settings.policy)
    if mapping is None:
        raise UnsupportedPolicyError(
            f"policy {settings.policy!r}: vLLM has no such policy; it serves {', '.join(sorted(_MAPPINGS))}"
        )
    return mapping(settings, dict(settings.policy_settings))


def engine_arguments(settings: EngineSettings) -> dict[str, Any]:
    """Keywords of vLLM's EngineArgs. Raises ConfigError for a directory or a number that cannot be used."""
    config = check_model_directory(settings.model)
    _check(settings)
    cache_tokens = settings.kv_capacity_tokens + settings.block_size_tokens  # vLLM keeps one block for itself
    return {
        "model": str(settings.model),
        "skip_tokenizer_init": True,
        "generation_config": "vllm",
        "load_format": "safetensors",
        "dtype": TORCH_DTYPE[settings.dtype],
        "seed": settings.seed,
        "max_model_len": settings.longest_request,
        "block_size": settings.block_size_tokens,
        "kv_cache_memory_bytes": cache_tokens * kv_bytes_per_token(config, DTYPE_BYTES[settings.dtype]),
        "enable_prefix_caching": False,
        "enforce_eager": settings.eager,
        "async_scheduling": settings.async_scheduling,
        "tensor_parallel_size": settings.tensor_parallel,
        "disable_log_stats": False,  # without statistics outputs carry no times
        **map_policy(settings).arguments,
    }


def environment(settings: EngineSettings) -> dict[str, str]:
    """What has to stand in the environment before vLLM is imported: one process, no network, one model runner."""
    return {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_USE_V2_MODEL_RUNNER": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_HOST_IP": "127.0.0.1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        **({} if settings.visible_devices is None else {"CUDA_VISIBLE_DEVICES": settings.visible_devices}),
        **map_policy(settings).environment,
    }


def _chunked(settings: EngineSettings, chosen: dict[str, Any]) -> PolicyMapping:
    chunk, decode_counts = chosen.pop("chunk_size_tokens", 512), chosen.pop("decode_counts", True)
    _check_no_more("chunked", chosen)
    if not decode_counts:
        raise UnsupportedPolicyError(
            "chunked with decode_counts=False: vLLM's max_num_batched_tokens counts decode tokens; want "
            "decode_counts=True"
        )
    _check_positive("chunk_size_tokens", chunk)
    running = min(settings.max_batch_size, chunk)
    notes = ["decode tokens count inside the chunk"]
    if running < settings.max_batch_size:
        notes.append(f"{running} requests run at most, not {settings.max_batch_size}: one token of the chunk each")
    tokens = {"max_num_batched_tokens": chunk}
    if settings.room_tokens is not None:
        if settings.room_tokens < chunk:
            raise ConfigError(f"room_tokens is {settings.room_tokens}; want at least the chunk's {chunk}")
        tokens = {"max_num_batched_tokens": settings.room_tokens, "max_num_scheduled_tokens": chunk}
    return PolicyMapping(
        policy="chunked",
        arguments={**tokens, "enable_chunked_prefill": True, "max_num_seqs": running},
        environment={},
        notes=tuple(notes),
    )


def _continuous(settings: EngineSettings, chosen: dict[str, Any]) -> PolicyMapping:
    if chosen.pop("max_prefill_tokens", None) is not None:
        raise UnsupportedPolicyError(
            "continuous with max_prefill_tokens: vLLM has no limit on prompt tokens alone; want none"
        )
    _check_no_more("continuous", chosen)
    unbounded = max(settings.kv_capacity_tokens, settings.longest_request, settings.max_batch_size)
    return PolicyMapping(
        policy="continuous",
        arguments={
            "max_num_batched_tokens": unbounded,
            "enable_chunked_prefill": False,
            "max_num_seqs": settings.max_batch_size,
        },
        environment={},
        notes=("vLLM calls switching chunking off unofficial",),
    )


def _layered(settings: EngineSettings, chosen: dict[str, Any]) -> PolicyMapping:
    """Returns a scheduler and a worker of ours; what they cannot run under, they refuse themselves when they start."""
    from pytest_npubench.extensions.vllm.layered import settings as layered

    allowed = ["num_layer_groups", "tokens_per_iteration"]
    allowed.append("chunk_size_tokens" if settings.policy == "hybrid" else "merge_cap_tokens")
    _check_no_more(settings.policy, {name: value for name, value in chosen.items() if name not in allowed})
    if not settings.eager or settings.tensor_parallel > 1 or settings.async_scheduling:
        raise UnsupportedPolicyError(
            f"{settings.policy}: vLLM wants eager, tensor_parallel 1 and async_scheduling off for it"
        )
    if settings.policy == "hybrid":
        chosen.setdefault("chunk_size_tokens", HYBRID_CHUNK_TOKENS)
    arguments = layered.engine_arguments(
        layered.LayeredSettings(**chosen),
        max_model_len=settings.longest_request,
        max_num_seqs=settings.max_batch_size,
    )
    notes = ("our scheduler and worker in stock vLLM", "decode tokens do not count inside a chunk")
    return PolicyMapping(
        policy=settings.policy, arguments=arguments, environment=dict(layered.ENVIRONMENT), notes=notes
    )


def _static(settings: EngineSettings, chosen: dict[str, Any]) -> PolicyMapping:
    raise UnsupportedPolicyError("policy static: vLLM lets requests join a running batch, and no setting stops it")


def _disaggregated(settings: EngineSettings, chosen: dict[str, Any]) -> PolicyMapping:
    raise UnsupportedPolicyError("policy disaggregated: two vLLM servers and a KV connector; this engine runs one")


_MAPPINGS: dict[str, Callable[[EngineSettings, dict[str, Any]], PolicyMapping]] = {
    "chunked": _chunked,
    "continuous": _continuous,
    "layered": _layered,
    "hybrid": _layered,
    "static": _static,
    "disaggregated": _disaggregated,
}


def _check(settings: EngineSettings) -> None:
    if settings.dtype not in DTYPE_BYTES:
        raise ConfigError(f"dtype {settings.dtype!r}; vLLM is run in {', '.join(DTYPE_BYTES)}")
    for name in ("max_batch_size", "kv_capacity_tokens", "block_size_tokens", "longest_request", "tensor_parallel"):
        _check_positive(name, getattr(settings, name))
    if settings.kv_capacity_tokens % settings.block_size_tokens:
        raise ConfigError(
            f"kv_capacity_tokens is {settings.kv_capacity_tokens}; want a multiple of block_size_tokens, "
            f"{settings.block_size_tokens}"
        )
    if settings.longest_request > settings.kv_capacity_tokens:
        raise ConfigError(
            f"max_model_tokens is {settings.longest_request}; want at most kv_capacity_tokens, "
            f"{settings.kv_capacity_tokens}: vLLM wants room for one longest request"
        )


def _check_positive(name: str, value: object) -> None:
    if not isinstance(value, int) or value < 1:
        raise ConfigError(f"{name} is {value!r}; want an integer of at least 1")


def _check_no_more(policy: str, chosen: Chosen) -> None:
    if chosen:
        raise UnsupportedPolicyError(f"{policy}: vLLM has no setting for {', '.join(sorted(chosen))}")
