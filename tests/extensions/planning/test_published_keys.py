"""Keys that programs write, as their public sources have them: of a benchmark, an engine and a quantised checkpoint.

What is named of them is what may change the answer; test_real_files.py has whole files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_npubench.extensions.planning.stated_engine import EngineArguments, keys_of

from .test_every_key import LISTS
from .test_real_files import read, write

SUMMARIES = " ".join(
    f"{part}_{of}_ms" for part in ("median", "std", "p25", "p75", "p99") for of in ("ttft", "tpot", "itl", "e2el")
)
COMMON = f"""backend model_id tokenizer_id date total_input_tokens total_output_tokens output_throughput
    total_token_throughput {SUMMARIES}"""
# by program: what changes nothing, and what is named
BENCHMARKS = {
    "vLLM 0.5": (f"{COMMON} input_throughput", "best_of use_beam_search"),
    "vLLM 0.6": (f"{COMMON} burstiness request_goodput:", "best_of"),
    "vLLM 0.9": (
        f"{COMMON} endpoint_type label ramp_up_strategy ramp_up_start_rps ramp_up_end_rps",
        "tokenizer_kwargs",
    ),
    "vLLM 0.14": (
        f"{COMMON} max_output_tokens_per_s max_concurrent_requests rtfx request_goodput rps_change_events",
        "spec_decode_acceptance_rate spec_decode_acceptance_length spec_decode_num_drafts spec_decode_draft_tokens",
    ),
    "SGLang 0.4": (
        f"""{COMMON} tag dataset_name sharegpt_output_len random_input_len random_output_len random_range_ratio
        input_throughput total_throughput total_output_tokens_retokenized concurrency max_itl_ms""",
        "accept_length",
    ),
    "SGLang 0.5": (
        f"""{COMMON} total_input_text_tokens total_input_vision_tokens output_throughput_retokenized
        total_throughput_retokenized benchmark_start_time benchmark_end_time global_request_ids latencies""",
        "server_info itl_token_lens cached_tokens cached_tokens_details speculative_decoding_stats successes",
    ),
    "TensorRT-LLM 1": (f"{COMMON} user_throughput request_goodput:", "avg_decoded_tokens_per_iter"),
}
# EngineArgs of vLLM 0.32
ARGUMENTS = """model enable_return_routed_experts return_sampling_mask model_weights served_model_name tokenizer
    hf_config_path skip_tokenizer_init tokenizer_mode trust_remote_code allowed_local_media_path
    allowed_media_domains download_dir safetensors_load_strategy safetensors_prefetch_num_threads
    safetensors_prefetch_block_size load_format config_format seed cudagraph_capture_sizes max_cudagraph_capture_size
    ir_op_priority distributed_executor_backend master_addr master_port nnodes node_rank distributed_timeout_seconds
    cpu_distributed_timeout_seconds numa_bind numa_bind_nodes numa_bind_cpus device_ids dcp_comm_backend
    dcp_q_replicate data_parallel_rank data_parallel_start_rank data_parallel_size_local data_parallel_address
    data_parallel_rpc_port data_parallel_backend enable_batch_sharded_sampling enable_ep_weight_filter moe_backend
    linear_backend sparse_indexer_topk_backend all2all_backend dbo_decode_token_threshold dbo_prefill_token_threshold
    disable_nccl_for_dp_synchronization eplb_config _api_process_count _api_process_rank max_parallel_loading_workers
    prefix_caching_hash_algo disable_cascade_attn max_logprobs logprobs_mode use_fp64_gumbel disable_log_stats
    aggregate_engine_logging revision code_revision hf_token tokenizer_revision allow_deprecated_quantization
    disable_custom_all_reduce enable_shm_tensor_arena limit_mm_per_prompt enable_mm_embeds interleave_mm_strings
    media_io_kwargs mm_processor_kwargs mm_processor_cache_gb mm_encoder_tp_mode mm_encoder_attn_backend
    mm_tensor_ipc renderer_num_workers video_pruning_rate video_pruning_method ray_workers_use_nsight
    model_loader_extra_config ignore_patterns structured_outputs_config aux_output_config reasoning_parser
    reasoning_parser_plugin watermark_config show_hidden_metrics_for_version otlp_traces_endpoint
    collect_detailed_traces per_request_spec_decode_metrics kv_cache_metrics kv_cache_metrics_sample
    custom_histogram_buckets cudagraph_metrics enable_layerwise_nvtx_tracing enable_mfu_metrics
    enable_logging_iteration_details jit_monitor_mode jit_monitor_verbose enable_mm_processor_stats
    compilation_config attention_config mamba_config kernel_config enable_flashinfer_autotune worker_cls
    worker_extension_cls profiler_config logging_config log_level log_config_file ec_manager_config reasoning_config
    generation_config enable_sleep_mode sleep_mode_offload_cudagraph sleep_preserve_parameter_names
    enable_cumem_allocator enable_nccl_comm_suspend override_generation_config model_impl attention_backend
    replayssm_buffer_len mamba_backend mamba_ssu_algorithm additional_config use_tqdm_on_load pt_load_map_location
    logits_processors optimization_level performance_mode fault_tolerance_config enable_fault_tolerance
    kv_offloading_backend shutdown_timeout weight_transfer_config fail_on_environ_validation gdn_prefill_backend
    kda_prefill_backend kda_decode_backend enable_log_requests"""
NAMED_ARGUMENTS = """enable_prompt_embeds prefill_context_parallel_size decode_context_parallel_size
    dcp_kv_cache_interleave_size data_parallel_hybrid_lb data_parallel_external_lb
    data_parallel_multi_port_external_lb enable_hc_sp enable_elastic_ep elastic_ep_max_dp_size enable_dbo ubatch_size
    dp_sync_interval enable_eplb prefix_cache_retention_interval disable_sliding_window offload_backend
    cpu_offload_gb cpu_offload_params offload_group_size offload_num_in_group offload_prefetch_step offload_params
    kv_cache_memory_bytes max_num_scheduled_tokens long_prefill_token_threshold long_prefill_token_threshold_adaptive
    max_num_active_seqs max_num_queued_reqs max_num_queued_tokens hf_overrides model_class_overrides quantization
    quantization_config enforce_eager language_model_only enable_lora max_loras max_lora_rank fully_sharded_loras
    max_cpu_loras disable_chunked_mm_input prefill_schedule_interval watermark speculative_config spec_method
    spec_model spec_tokens diffusion_config scheduler_cls pooler_config engram_config kv_transfer_config
    kv_events_config ec_transfer_config kv_cache_dtype_skip_layers mamba_cache_dtype mamba_ssm_cache_dtype
    mamba_block_size prefix_match_unit mamba_cache_mode use_replayssm stream_interval kv_sharing_fast_prefill
    swa_bounded_replay kv_offloading_size scheduler_reserve_full_isl enable_chunked_prefill scheduling_policy
    expert_placement_strategy runner convert"""
# ModelOpt's and TensorRT-LLM's algorithms, and the bits of a weight with its part of the scales
ALGORITHMS = {
    "FP8": 8,
    "fp8_pb_wo": 8,
    "FP8_PER_CHANNEL_PER_TOKEN": 8,
    "W8A8_SQ_PER_CHANNEL": 8,
    "MXFP8": 8.25,
    "W4A16_AWQ": 4.125,
    "W4A8_AWQ": 4.125,
    "NVFP4": 5,
    "NVFP4_AWQ": 5,
    "W4A8_NVFP4_FP8": 5,
    "W4A8_MXFP4_FP8": 4.25,
    "W4A16_MXFP4": 4.25,
    "FP8_BLOCK_SCALES": 8,
    "W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN": 8,
    "W8A16": 8,
    "W4A16": 4,
    "INT8_WO": 8,
    "W4A16_GPTQ": 4.125,
    "W8A16_GPTQ": 8.125,
}


def named(said: str) -> set[str]:
    """The keys of the doubt that names some."""
    before, _, _ = said.partition(": not read, whatever that changes")
    return set(before.rpartition(": ")[2].split(", ")) if before != said else set()


@pytest.mark.parametrize("program", BENCHMARKS)
def test_of_a_benchmark_what_may_change_the_answer_is_named(program: str, tmp_path: Path) -> None:
    harmless, doubted = BENCHMARKS[program]
    keys: dict[str, Any] = dict.fromkeys([*harmless.split(), *doubted.split()], 7)
    made, said = read("bench", write(tmp_path, "bench", {**keys, **LISTS}))
    assert made is not None, said
    assert named(said) == set(doubted.split())


def test_of_an_engine_s_arguments_what_may_change_the_answer_is_named(tmp_path: Path) -> None:
    keys = dict.fromkeys([*ARGUMENTS.split(), *NAMED_ARGUMENTS.split()], "some")
    made, said = read("meta", write(tmp_path, "meta", {"engine_kwargs": keys}))
    assert made is not None, said
    assert named(said) == set(NAMED_ARGUMENTS.split())
    assert not keys.keys() & set(keys_of(EngineArguments))


@pytest.mark.parametrize(("algorithm", "bits"), ALGORITHMS.items())
def test_the_bits_of_every_algorithm_of_modelopt(algorithm: str, bits: float, tmp_path: Path) -> None:
    """Groups of 128 weights in AWQ, and of 8 in NVFP4, whose scales have 16 and 8 bits."""
    keys = {"group_size": 8 if "NV" in algorithm else 128, "has_zero_point": False}
    keys |= {"pre_quant_scale": True, "smoothquant_val": 0.5, "clamp_val": [1], "use_meta_recipe": True}
    content = {"quantization": {"quant_algo": algorithm, "exclude_modules": ["lm_head"], **keys}}
    made, said = read("quant", write(tmp_path, "quant", content))
    assert made is not None, said
    assert made["weight_bits"].bits == bits
    assert named(said) == set()
