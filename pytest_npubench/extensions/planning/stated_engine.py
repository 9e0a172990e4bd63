"""What is said of the engine that served a run: settings that a run's meta.json has, or that vLLM logs when it starts.

A setting that is neither read nor known to be without effect is named in a doubt.

Worked example: {"engine_kwargs": {"max_num_seqs": 64, "lora": 5}} is a batch limit of 64, and "meta.json: lora: not
read, whatever that changes".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from pytest_npubench.core.record_reader import OPEN_JSON, WrongEntryError, key, keys_of
from pytest_npubench.errors import WorkloadError

if TYPE_CHECKING:
    from pytest_npubench.engines.kv_capacity import KvGroups

BLOCK_TOKENS = 16  # vLLM's default
ENGINE_TABLES = ("engine_kwargs", "engine_args", "kv_cache", "cache_config")
"""Tables of meta.json that say how the engine was started; the later ones say what came of it, and count."""
RESOLVED = "resolved_config"
"""Table of all of vLLM's settings as it serves with them. It counts before the others."""
RESOLVED_TABLES = ("model_config", "parallel_config", "scheduler_config", "cache_config")
SAME = {
    "cache_dtype": "kv_cache_dtype",
    "max_seq_len": "max_model_len",
    "kv_cache_size_tokens": "num_kv_tokens",
    "chunked_prefill_enabled": "enable_chunked_prefill",
}
"""Settings that have another name as they are resolved, or in an older log."""
OF_RUNS = """schema_version model model_name model_id model_tag served_model_name tokenizer tokenizer_id tokenizer_mode
    revision code_revision tokenizer_revision engine date time timestamp host hostname port gpu gpu_name
    hardware notes workload dataset num_requests dataset_path dataset_hash started_at finished_at tick_seconds seed
    load_format load_config download_dir trust_remote_code skip_tokenizer_init swap_space
    instance_id model_weights hf_config hf_text_config config_format api_key uvicorn_log_level"""
# what is written of a run, and what is done with its answers
_OF_ANSWERS = """disable_log_stats disable_log_requests enable_log_requests observability_config profiler_config
    max_logprobs logprobs_mode generation_config structured_outputs_config decoding_config tool_call_parser
    reasoning_parser enable_auto_tool_choice chat_template renderer_num_workers multi_step_stream_outputs
    enable_prompt_tokens_details shutdown_timeout enable_logging_iteration_details logging_config log_level
    log_config_file aggregate_engine_logging show_hidden_metrics_for_version otlp_traces_endpoint
    collect_detailed_traces per_request_spec_decode_metrics custom_histogram_buckets cudagraph_metrics
    enable_layerwise_nvtx_tracing enable_mfu_metrics return_sampling_mask use_fp64_gumbel override_generation_config
    logits_processors reasoning_parser_plugin reasoning_config watermark_config aux_output_config"""
# the server before the engine: BaseFrontendArgs and FrontendArgs of vLLM 0.32
_OF_SERVERS = """chat_template_content_format trust_request_chat_template trust_request_mm_kwargs response_role
    default_chat_template_kwargs return_tokens_as_token_ids exclude_tools_when_tool_choice_none tool_parser_plugin
    tool_strict_level tool_server max_log_len enable_per_request_metrics enable_server_load_tracking
    enable_force_include_usage sse_keep_alive_interval enable_tokenizer_info_endpoint enable_log_outputs
    enable_log_deltas anthropic_disabled_thinking_effort log_error_stack grpc_port data_parallel_supervisor_port uds
    disable_uvicorn_access_log disable_access_log_for_endpoints allow_credentials enable_ssl_refresh root_path
    middleware enable_request_id_headers disable_fastapi_docs enable_offline_docs api_server_count headless"""
# where files come from, and what processes there are
_OF_PROCESSES = """hf_config_path hf_token model_loader_extra_config ignore_patterns use_tqdm_on_load
    weight_transfer_config pt_load_map_location allow_deprecated_quantization max_parallel_loading_workers
    fail_on_environ_validation nnodes node_rank distributed_timeout_seconds cpu_distributed_timeout_seconds
    device_ids data_parallel_rank data_parallel_start_rank data_parallel_size_local data_parallel_address
    _api_process_count _api_process_rank ray_workers_use_nsight worker_extension_cls enable_shm_tensor_arena
    enable_fault_tolerance enable_sleep_mode sleep_mode_offload_cudagraph sleep_preserve_parameter_names
    enable_cumem_allocator enable_nccl_comm_suspend"""
# how an iteration is computed and sent between devices: whatever it is, the times of the run have it
_OF_ITERATIONS = """additional_config attention_config compilation_config device_config kernel_config mamba_config
    offload_config optimization_level performance_mode model_impl disable_cascade_attn sleep_mode_backend
    distributed_executor_backend disable_custom_all_reduce disable_nccl_for_dp_synchronization all2all_backend
    dcp_comm_backend worker_cls sd_worker_cls master_addr master_port data_parallel_backend data_parallel_master_ip
    data_parallel_master_port data_parallel_rpc_port prefix_caching_hash_algo fault_tolerance_config moe_backend
    linear_backend sparse_indexer_topk_backend attention_backend mamba_backend mamba_ssu_algorithm gdn_prefill_backend
    kda_prefill_backend kda_decode_backend cudagraph_capture_sizes max_cudagraph_capture_size ir_op_priority
    dcp_q_replicate enable_batch_sharded_sampling enable_ep_weight_filter enable_flashinfer_autotune
    enable_return_routed_experts max_seq_len_to_capture device"""
# of encoders, or told by another setting
_TOLD = """encoder_cache_size max_num_encoder_input_tokens ec_manager_config is_multimodal_model is_moe_model world_size
    kv_cache_max_concurrency user_specified_block_size user_specified_mamba_block_size kv_offloading_backend
    eplb_config dbo_decode_token_threshold dbo_prefill_token_threshold replayssm_buffer_len limit_mm_per_prompt
    enable_mm_embeds enable_mm_processor_stats interleave_mm_strings media_io_kwargs"""
WITHOUT_EFFECT = frozenset(f"{OF_RUNS} {_OF_ANSWERS} {_OF_SERVERS} {_OF_PROCESSES} {_OF_ITERATIONS} {_TOLD}".split())
BEGINNINGS = (
    *("mm_", "numa_bind", "safetensors_", "allowed_", "jit_monitor_", "kv_cache_metrics", "video_pruning_"),
    *("ssl_", "h11_", "cohere_", "dp_supervisor_", "fingerprint_"),
)
"""Of settings without effect."""
NEUTRAL = ("None", "False", "0", "0.0", "1", "1.0", "''", "'auto'", "'none'", "[]", "{}")
"""Values, as Python writes them, of settings that are not used."""
DEFAULTS = {
    "enable_chunked_prefill": (True, None),
    "scheduler_reserve_full_isl": (True, None),
    "policy": ("fcfs",),
    "scheduling_policy": ("fcfs",),
    "runner_type": ("generate",),
    "runner": ("auto", "generate"),
    "expert_placement_strategy": ("linear",),
}
"""Settings that change something where they are something else."""
_DTYPES = {
    "auto": None,
    "bfloat16": "bf16",
    "half": "fp16",
    "float16": "fp16",
    "float": "fp32",
    "float32": "fp32",
    "fp8": "fp8",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "int8": "int8",
    "int4": "int4",
}
Tokens = Annotated[int, Meta(ge=1, le=10**12, description="a whole number from 1 to 10^12")]
Devices = Annotated[int, Meta(ge=1, le=1024, description="a whole number from 1 to 1024")]
Fraction = Annotated[float, Meta(gt=0, le=1, description="a fraction, above 0 and at most 1")]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineArguments:
    """What the server was started with, as far as it is known."""

    max_batch_size: Tokens | None = field(default=None, metadata=key("max_num_seqs"))
    chunk_size_tokens: Tokens | None = field(default=None, metadata=key("max_num_batched_tokens"))
    tensor_parallel: Devices = field(default=1, metadata=key("tensor_parallel_size"))
    pipeline_parallel: Devices = field(default=1, metadata=key("pipeline_parallel_size"))
    data_parallel: Devices = field(default=1, metadata=key("data_parallel_size"))
    is_expert_parallel: bool = field(default=False, metadata=key("enable_expert_parallel"))
    keeps_blocks: bool | None = field(default=None, metadata=key("enable_prefix_caching"))
    torch_dtype: str | None = field(default=None, metadata=key("dtype"))
    torch_kv_dtype: str | None = field(default=None, metadata=key("kv_cache_dtype"))
    memory_fraction: Fraction | None = field(default=None, metadata=key("gpu_memory_utilization"))
    kv_blocks_wanted: Tokens | None = field(default=None, metadata=key("num_gpu_blocks_override"))
    kv_blocks: Tokens | None = field(default=None, metadata=key("num_gpu_blocks"))
    kv_tokens: Tokens | None = field(default=None, metadata=key("num_kv_tokens"))
    block_tokens: Tokens | None = field(default=None, metadata=key("block_size"))
    is_asynchronous: bool | None = field(default=None, metadata=key("async_scheduling"))
    keeps_windows: bool | None = field(default=None, metadata=key("disable_hybrid_kv_cache_manager"))
    context_tokens: Annotated[int, Meta(le=10**12, description="a whole number up to 10^12")] | None = field(
        default=None, metadata=key("max_model_len")
    )
    version: str | None = field(default=None, metadata=key("vllm_version"))

    @property
    def kv_capacity_tokens(self) -> int | None:
        """The KV tokens of a replica: as the engine counted them, else its blocks; None where neither is given."""
        blocks = self.kv_blocks or self.kv_blocks_wanted
        return self.kv_tokens or (blocks and blocks * (self.block_tokens or BLOCK_TOKENS))

    def blocks_of(self, groups: KvGroups, context_tokens: int | None) -> int | None:
        """The KV blocks, of which each group of layers takes its own. From 0.28 on vLLM states the tokens of as many
        requests of max_model_len as fit (0.32: get_kv_cache_capacity, beside its KV cache manager). None where a part
        of that is not stated. context_tokens: of the model, which is what max_model_len is by default."""
        if blocks := self.kv_blocks or self.kv_blocks_wanted:
            return blocks
        size, length = self.block_tokens or BLOCK_TOKENS, self.context_tokens or context_tokens or 0
        version = tuple(map(int, re.findall(r"\d{1,9}", self.version or "")[:2]))
        if not self.kv_tokens or not self.chunk_size_tokens or length < 1 or version < (0, 28):
            return None
        num_batches = self.pipeline_parallel + (self.is_asynchronous is not False)
        windowed = min(groups.window - 1 + num_batches * self.chunk_size_tokens, length)
        of_request = groups.num_full * ceil(length / size) + groups.num_windowed * (ceil(windowed / size) + 1)
        return -(-self.kv_tokens * of_request // length)

    @property
    def dtype(self) -> str | None:
        """The dtype as hardware files name it; None: not stated."""
        return _DTYPES[self.torch_dtype or "auto"]

    @property
    def kv_dtype(self) -> str | None:
        return _DTYPES[self.torch_kv_dtype or "auto"]

    def __post_init__(self) -> None:
        for name, given in (("dtype", self.torch_dtype), ("kv_cache_dtype", self.torch_kv_dtype)):
            if (given or "auto") not in _DTYPES:
                raise WrongEntryError(name, f"{given!r}; want one of {', '.join(_DTYPES)}")


def engine_of(path: Path, about: Mapping[str, Any]) -> tuple[EngineArguments, tuple[str, ...]]:
    """What a meta.json says of the engine, and the doubts of it. Raises WorkloadError."""
    tables = {name: about[name] for name in ENGINE_TABLES if name in about}
    given: dict[str, Any] = {name: value for name, value in about.items() if name not in (*tables, RESOLVED)}
    try:
        for name, table in tables.items():
            given |= _settings(table, name)
        resolved = dict(OPEN_JSON.table(about.get(RESOLVED, {}), RESOLVED))
        for name in RESOLVED_TABLES:
            given |= _settings(resolved.pop(name, {}), f"{RESOLVED}.{name}")
        given |= resolved
        given = {name: value for name, value in given.items() if value is not None}
        doubts = unread(path, given, keys_of(EngineArguments), WITHOUT_EFFECT, BEGINNINGS)
        return OPEN_JSON.record(EngineArguments, given, "engine_kwargs"), doubts
    except ValueError as error:
        raise WorkloadError(f"{path}: {error}") from None


def _settings(table: Any, name: str) -> dict[str, Any]:
    """Those of a table that are given, by the names that are read."""
    return {
        SAME.get(key, key): value.removeprefix("torch.") if isinstance(value, str) else value
        for key, value in OPEN_JSON.table(table, name).items()
        if value is not None
    }


def unread(
    path: Path,
    table: Mapping[str, Any],
    read: Collection[str],
    neutral: Collection[str],
    summaries: tuple[str, ...] = (),
) -> tuple[str, ...]:
    """The keys that change what is simulated, for all that is known here, and are not read, in a sentence. neutral,
    summaries: keys without effect, and beginnings of such."""
    keys = [
        name
        for name, value in table.items()
        if name not in read and name not in neutral and not name.startswith(summaries) and not is_neutral(name, value)
    ]
    return (f"{path.name}: {', '.join(keys)}: not read, whatever that changes",) if keys else ()


def is_neutral(name: str, value: object) -> bool:
    return value in DEFAULTS[name] if name in DEFAULTS else repr(value) in NEUTRAL
