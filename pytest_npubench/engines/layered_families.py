"""What config.json does not say of a family, because its class of transformers knows it: norms, biases, gates, and what
a key that is left out means. Everything else is read from the keys, whose names of one meaning are brought to one here.

A family that is not listed is read by its keys alone, as if it had Llama's norms, where all of them are known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Config = Mapping[str, Any]
# names of one meaning, the first of them as it is read here
ALIASES: Mapping[str, str] = {
    name: names.split()[0]
    for names in """
        hidden_size d_model n_embd n_embed
        num_hidden_layers n_layers n_layer
        num_attention_heads n_heads n_head num_heads
        num_key_value_heads num_kv_heads n_head_kv kv_n_heads num_attention_groups
        head_dim attention_head_dim
        intermediate_size ffn_hidden_size block_ff_dim
        dense_intermediate_size prefix_dense_intermediate_size intermediate_size_mlp
        max_position_embeddings max_seq_len
        tie_word_embeddings tie_embedding
        num_experts n_routed_experts num_local_experts moe_num_experts
        num_experts_per_tok num_experts_per_token experts_per_token moe_k moe_topk moe_top_k top_k_experts
        n_shared_experts num_shared_experts num_shared_expert moe_num_shared_experts
        shared_expert_intermediate_size moe_shared_expert_intermediate_size shared_intermediate_size share_expert_dim
        first_k_dense_replace num_dense_layers moe_layer_start_index moe_layer_num_skipped
        decoder_sparse_step interleave_moe_layer_step moe_layer_interval
        layer_types layers_block_type hybrid_override_pattern
        sliding_window sliding_window_size
        mamba_num_heads mamba_n_heads
        mamba_head_dim mamba_d_head
        ssm_state_size mamba_d_state
        n_groups mamba_n_groups
        conv_kernel mamba_d_conv
        expand mamba_expand
        use_conv_bias mamba_conv_bias
        mamba_ssm_dtype mamba_ssm_cache_dtype
        num_nextn_predict_layers num_mtp_modules mtp_num_hidden_layers
        mtp_layers_block_type mtp_hybrid_override_pattern
        swa_num_attention_heads num_sliding_attention_heads
    """.strip().splitlines()
    for name in names.split()[1:]
}


# keys of tables of linear attention and of an index, by their names here
OF_TABLES = {
    "num_heads": "linear_num_heads",
    "head_dim": "linear_head_dim",
    "short_conv_kernel_size": "linear_conv_kernel_dim",
    "sparse_index_dim": "index_head_dim",
    "sparse_num_index_heads": "index_n_heads",
    "sparse_topk_blocks": "index_topk_blocks",
    "sparse_block_size": "index_block_size",
}
GIVEN_NAMES = "_names"
"""Key of what the file itself calls those that have another name here."""


def with_own_names(config: Config) -> dict[str, Any]:
    """The file with one name for each meaning. Tables of attention and feed-forward parts are laid out in it."""
    plain = dict(config)
    for table in (
        "attn_config",
        "ffn_config",
        "attention_other_setting",
        "linear_attn_config",
        "sparse_attention_config",
    ):
        inner = plain.pop(table) if isinstance(config.get(table), Mapping) else {}
        for key, value in inner.items():
            name = f"swa_{ALIASES.get(key, key)}" if table == "attention_other_setting" else key
            plain.setdefault(name if table in ("attn_config", "ffn_config") else OF_TABLES.get(name, name), value)
    given = {}
    for alias, name in ALIASES.items():
        value = plain.pop(alias, None)
        if value is not None and plain.get(name) is None:
            plain[name], given[name] = value, alias
    return plain | _spelled_out(plain) | {GIVEN_NAMES: given}


def _spelled_out(config: Config) -> dict[str, Any]:
    """What a family says by keys of its own, by those of all others."""
    family = config.get("model_type")
    if family == "falcon":
        has_groups, hidden = bool(config.get("new_decoder_architecture")), config.get("hidden_size") or 0
        norms = config.get("num_ln_in_parallel_attn") or 1 + has_groups
        is_single = config.get("multi_query", True) and not has_groups
        return {
            "num_key_value_heads": 1 if is_single else config.get("num_key_value_heads"),
            "intermediate_size": config.get("intermediate_size") or 4 * hidden,
            "_norms": 2 * (norms if config.get("parallel_attn", True) else 2),
            "attention_bias": config.get("bias"),
            "mlp_bias": config.get("bias"),
        }
    if family in ("ernie4_5", "ernie4_5_moe"):
        bias = config.get("use_bias")
        return {"attention_bias": bias, "mlp_bias": bias, "lm_head_bias": bias and family != "ernie4_5"}
    if family == "mimo_v2_flash" and config.get("swa_num_key_value_heads") is None:
        return {"swa_num_key_value_heads": 2 * (config.get("num_key_value_heads") or 4)}
    if family == "lfm2" and config.get("block_auto_adjust_ff_dim", True):
        wanted = int(2 * config["intermediate_size"] / 3 * (config.get("block_ffn_dim_multiplier") or 1))
        step = config.get("block_multiple_of") or 256
        return {"intermediate_size": -(-wanted // step) * step}
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class LayeredFamily:
    """classes: prefixes of its classes' names, where these are not the words of the model type. num_norms: of a layer,
    vectors of the hidden width; expert_norms: more of them where there are experts; final_norms: after the last layer.
    qk_norm: of queries and keys, over each head or over all heads together; used_qk_norm: where `use_qk_norm` says so.
    qkv_bias: whatever the file says. has_output_bias: where attention_bias says so. output_gate: of attention, for each
    value or for each head. matrices: of a feed-forward block. has_router_bias: a value for each expert.
    has_dense_beside: a dense block stands beside the experts. is_parallel: every layer has attention and a state."""

    classes: tuple[str, ...] = ()
    num_norms: int = 2
    expert_norms: int = 0
    final_norms: int = 1
    qk_norm: Literal["", "head", "all"] = ""
    used_qk_norm: Literal["", "head", "all"] = "head"
    qkv_bias: bool = False
    has_output_bias: bool = True
    output_gate: Literal["", "value", "head"] = ""
    matrices: int = 3
    has_shared_gate: bool = False
    has_router_bias: bool = False
    has_dense_beside: bool = False
    is_parallel: bool = False
    missing: Mapping[str, Any] = field(default_factory=dict)


_LATENT = LayeredFamily(missing={"kv_lora_rank": 512})
_GEMMA: dict[str, Any] = {"tie_word_embeddings": True, "head_dim": 256}
_DELTA: dict[str, Any] = {
    "full_attention_interval": 4,
    "linear_num_value_heads": 32,
    "linear_num_key_heads": 16,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "head_dim": 256,
}
_QWEN3_5 = LayeredFamily(qk_norm="head", output_gate="value", has_shared_gate=True, missing=_DELTA)
_MINIMAX_M3 = LayeredFamily(classes=("MiniMaxM3", "MiniMaxM3Sparse", "MiniMaxM3VL"), qk_norm="head")
_STEP = LayeredFamily(
    classes=("Step3p5", "Step3p7", "Step3p7Flash"),
    qk_norm="head",
    output_gate="head",
    missing={"first_k_dense_replace": 3},
)
_GRANITE = LayeredFamily(missing={"num_experts": 0})
_COHERE: dict[str, Any] = {"tie_word_embeddings": True}
_LLAMA4 = {"no_rope_layer_interval": 4, "n_shared_experts": 1, "attention_chunk_size": 8192, "decoder_sparse_step": 1}

FAMILIES: Mapping[str, LayeredFamily] = {
    "deepseek_v2": _LATENT,
    "deepseek_v3": _LATENT,
    "deepseek_v32": _LATENT,
    "kimi_k2": LayeredFamily(classes=("DeepseekV3", "KimiK2")),
    "glm_moe_dsa": LayeredFamily(),
    "glm4_moe": LayeredFamily(has_output_bias=False),
    "glm4_moe_lite": LayeredFamily(),
    "kimi_linear": LayeredFamily(),
    "qwen2_moe": LayeredFamily(qkv_bias=True, has_output_bias=False, has_shared_gate=True),
    "qwen3_next": _QWEN3_5,
    "qwen3_5_text": _QWEN3_5,
    "qwen3_5_moe_text": _QWEN3_5,
    "qwen3_vl_text": LayeredFamily(qk_norm="head"),
    "qwen3_vl_moe_text": LayeredFamily(qk_norm="head"),
    "olmoe": LayeredFamily(qk_norm="all"),
    "olmo2": LayeredFamily(qk_norm="all"),
    "olmo3": LayeredFamily(qk_norm="all"),
    "gemma": LayeredFamily(missing=_GEMMA),
    "gemma2": LayeredFamily(num_norms=4, missing=_GEMMA | {"sliding_window": 4096, "sliding_window_pattern": 2}),
    "gemma3_text": LayeredFamily(
        classes=("Gemma3",),
        num_norms=4,
        qk_norm="head",
        missing=_GEMMA | {"sliding_window": 4096, "sliding_window_pattern": 6},
    ),
    "gemma4_text": LayeredFamily(
        classes=("Gemma4",),
        num_norms=4,
        expert_norms=4,
        qk_norm="head",
        has_router_bias=True,
        has_dense_beside=True,
        missing=_GEMMA | {"sliding_window": 512, "sliding_window_pattern": 6, "global_head_dim": 512},
    ),
    "llama4_text": LayeredFamily(classes=("Llama4",), used_qk_norm="", missing=_LLAMA4),
    "minimax": LayeredFamily(classes=("MiniMax", "MiniMaxText01", "MiniMaxM1")),
    "minimax_text_01": LayeredFamily(classes=("MiniMax", "MiniMaxText01")),
    "minimax_m1": LayeredFamily(classes=("MiniMaxM1",)),
    "minimax_m2": LayeredFamily(qk_norm="all", used_qk_norm="all"),
    "minimax_m3": _MINIMAX_M3,
    "minimax_m3_vl": _MINIMAX_M3,
    "minimax_m3_vl_text": _MINIMAX_M3,
    "phimoe": LayeredFamily(num_norms=4, final_norms=2),
    "hunyuan_v1_dense": LayeredFamily(classes=("HunYuanDenseV1",), qk_norm="head"),
    "hunyuan_v1_moe": LayeredFamily(classes=("HunYuanMoEV1",), qk_norm="head", missing={"n_shared_experts": 1}),
    "ernie4_5": LayeredFamily(missing={"tie_word_embeddings": True}),
    "ernie4_5_moe": LayeredFamily(has_router_bias=True, missing={"tie_word_embeddings": True}),
    "step3p5": _STEP,
    "step3p7": _STEP,
    "falcon": LayeredFamily(final_norms=2, matrices=2, missing={"tie_word_embeddings": True}),
    "dbrx": LayeredFamily(),
    "cohere": LayeredFamily(num_norms=1, used_qk_norm="all", missing=_COHERE),
    "cohere2": LayeredFamily(num_norms=1, missing=_COHERE | {"sliding_window": 4096, "sliding_window_pattern": 4}),
    "granite": _GRANITE,
    "granitemoe": _GRANITE,
    "granitemoeshared": _GRANITE,
    "granitemoehybrid": _GRANITE,
    "bamba": _GRANITE,
    "falcon_h1": LayeredFamily(is_parallel=True),
    "jamba": LayeredFamily(missing={"attn_layer_period": 8, "attn_layer_offset": 4}),
    "nemotron_h": LayeredFamily(num_norms=1, matrices=2, missing={"use_conv_bias": True}),
    "nemotron-nas": LayeredFamily(classes=("DeciLM",)),
    "lfm2": LayeredFamily(qk_norm="head", missing={"tie_word_embeddings": True}),
    "lfm2_moe": LayeredFamily(qk_norm="head", missing={"tie_word_embeddings": True}),
    "mimo": LayeredFamily(has_output_bias=False),
    "mimo_v2_flash": LayeredFamily(has_output_bias=False, missing={"add_swa_attention_sink_bias": True}),
    "phi3": LayeredFamily(),
    "smollm3": LayeredFamily(),
    "seed_oss": LayeredFamily(),
    "dots1": LayeredFamily(qk_norm="head"),
    "exaone4": LayeredFamily(qk_norm="head"),
    "glm4": LayeredFamily(num_norms=4, has_output_bias=False),
}
