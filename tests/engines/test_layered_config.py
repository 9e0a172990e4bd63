"""Families whose layers differ, against transformers' own models on torch's meta device, layer by layer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_npubench.engines.hf_config import read_shape, stated_context_tokens
from pytest_npubench.engines.kv_capacity import kv_copies
from pytest_npubench.engines.layered_config import FAMILIES
from pytest_npubench.errors import ConfigError

COMMON: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 48,
    "intermediate_size": 40,
    "num_hidden_layers": 7,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": None,
}
LATENT = {
    "kv_lora_rank": 20,
    "q_lora_rank": 24,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 4,
    "v_head_dim": 10,
    "num_key_value_heads": 6,
    "n_group": 1,
    "topk_group": 1,
    "head_dim": 4,
}
EXPERTS = {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "n_shared_experts": 2}
INDEX = {"index_n_heads": 3, "index_head_dim": 16, "index_topk": 8}
DELTA = {
    "linear_num_value_heads": 6,
    "linear_num_key_heads": 3,
    "linear_key_head_dim": 12,
    "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4,
}
QWEN_EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
MAMBA = {
    "mamba_n_heads": 12,
    "mamba_d_head": 8,
    "mamba_n_groups": 2,
    "mamba_d_state": 16,
    "mamba_proj_bias": True,
    "head_dim": 8,
}
HYBRID = ["linear_attention", "linear_attention", "full_attention", "linear_attention"] + ["linear_attention"] * 3
SPARSE = ["full_attention"] * 2 + ["minimax_m3_sparse"] * 5
CONVOLVED = ["conv", "conv", "full_attention", "conv", "conv", "full_attention", "conv"]
GEMMA4 = {
    "layer_types": ["sliding_attention", "full_attention"] * 3 + ["full_attention"],
    "sliding_window": 8,
    "global_head_dim": 20,
    "num_global_key_value_heads": 1,
    "attention_k_eq_v": True,
    "num_kv_shared_layers": 2,
    "use_double_wide_mlp": True,
    "hidden_size_per_layer_input": 12,
    "vocab_size_per_layer_input": 96,
}
# keys of COMMON that a class refuses
WITHOUT = {"falcon": {"head_dim", "intermediate_size"}, "dbrx": COMMON.keys() - {"vocab_size"}}
# by model type and class of transformers, what its configuration is given beside COMMON
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "deepseek_v2": ("DeepseekV2", {**LATENT, **EXPERTS, "first_k_dense_replace": 1}),
    "deepseek_v2, no rank of queries": ("DeepseekV2", {**LATENT, **EXPERTS, "q_lora_rank": None}),
    "deepseek_v3": ("DeepseekV3", {**LATENT, **EXPERTS, "first_k_dense_replace": 3}),
    "glm4_moe": ("Glm4Moe", {**EXPERTS, "first_k_dense_replace": 2}),
    "glm4_moe, norms and biases": ("Glm4Moe", {**EXPERTS, "use_qk_norm": True, "attention_bias": True}),
    "qwen2_moe": (
        "Qwen2Moe",
        {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "mlp_only_layers": [3]},
    ),
    "qwen2_moe, every other": ("Qwen2Moe", {"num_experts": 6, "num_experts_per_tok": 2, "decoder_sparse_step": 2}),
    "olmoe": ("Olmoe", {"num_experts": 6, "num_experts_per_tok": 2, "num_key_value_heads": 6, "head_dim": 8}),
    "olmo2": ("Olmo2", {"head_dim": 8}),
    "gemma": ("Gemma", {}),
    "gemma2": ("Gemma2", {"sliding_window": 8}),
    "gemma3_text": ("Gemma3", {"sliding_window": 8}),
    "deepseek_v32": ("DeepseekV32", {**LATENT, **EXPERTS, **INDEX, "first_k_dense_replace": 3}),
    "glm_moe_dsa": ("GlmMoeDsa", {**LATENT, **EXPERTS, **INDEX, "index_topk_freq": 3, "first_k_dense_replace": 1}),
    "glm4_moe_lite": ("Glm4MoeLite", {**LATENT, **EXPERTS, "first_k_dense_replace": 1}),
    "kimi_linear": (
        "KimiLinear",
        {**LATENT, **EXPERTS, "linear_num_heads": 3, "linear_head_dim": 8, "layer_types": HYBRID},
    ),
    "qwen3_next": ("Qwen3Next", {**DELTA, **QWEN_EXPERTS, "mlp_only_layers": [2], "full_attention_interval": 3}),
    "qwen3_5_text": ("Qwen3_5", DELTA),
    "qwen3_5_moe_text": ("Qwen3_5Moe", {**DELTA, **QWEN_EXPERTS}),
    "olmo3": ("Olmo3", {"head_dim": 8, "sliding_window": 8}),
    "gemma4_text": ("Gemma4", GEMMA4),
    "gemma4_text, experts": (
        "Gemma4",
        GEMMA4
        | {"enable_moe_block": True, "num_experts": 6, "top_k_experts": 2, "moe_intermediate_size": 24}
        | {"hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0, "use_double_wide_mlp": False},
    ),
    "llama4_text": (
        "Llama4",
        {
            "attention_chunk_size": 8,
            "num_local_experts": 6,
            "interleave_moe_layer_step": 2,
            "intermediate_size_mlp": 56,
        },
    ),
    "minimax": ("MiniMax", {"num_local_experts": 6, "num_experts_per_tok": 2}),
    "minimax_m2": ("MiniMaxM2", {"num_local_experts": 6, "num_experts_per_tok": 2}),
    "minimax_m3_vl_text": (
        "MiniMaxM3VL",
        {"num_local_experts": 6, "moe_layer_freq": [0, 0, 1, 1, 1, 1, 1], "dense_intermediate_size": 56}
        | {"shared_intermediate_size": 32, "rotary_dim": 8, "num_experts_per_tok": 2, "index_block_size": 4}
        | {"index_n_heads": 2, "index_head_dim": 16, "index_topk_blocks": 2, "layer_types": SPARSE},
    ),
    "phimoe": ("Phimoe", {"num_local_experts": 6, "attention_bias": True, "lm_head_bias": True}),
    "hunyuan_v1_dense": ("HunYuanDenseV1", {}),
    "hunyuan_v1_moe": ("HunYuanMoEV1", {"num_experts": 6, "moe_topk": 2}),
    "ernie4_5": ("Ernie4_5", {"use_bias": True}),
    "ernie4_5_moe": (
        "Ernie4_5_Moe",
        {"moe_num_experts": 6, "moe_k": 2, "moe_intermediate_size": 24, "moe_layer_interval": 2, "use_bias": True},
    ),
    "falcon": ("Falcon", {"hidden_size": 96, "new_decoder_architecture": True, "num_kv_heads": 2}),
    "falcon, one key head": ("Falcon", {"hidden_size": 96, "parallel_attn": False, "bias": True}),
    "dbrx": (
        "Dbrx",
        {
            "d_model": 96,
            "n_heads": 6,
            "n_layers": 3,
            "attn_config": {"kv_n_heads": 2, "rope_theta": 1e4, "clip_qkv": 8.0},
        }
        | {"ffn_config": {"moe_num_experts": 6, "moe_top_k": 2, "ffn_hidden_size": 24}},
    ),
    "cohere": ("Cohere", {"head_dim": 8, "use_qk_norm": True}),
    "cohere2": ("Cohere2", {"head_dim": 8, "sliding_window": 8}),
    "granite": ("Granite", {"head_dim": 8}),
    "granitemoe": ("GraniteMoe", {"head_dim": 8, "num_local_experts": 6}),
    "granitemoeshared": ("GraniteMoeShared", {"head_dim": 8, "num_local_experts": 6, "shared_intermediate_size": 32}),
    "granitemoehybrid": (
        "GraniteMoeHybrid",
        {**MAMBA, "num_local_experts": 6, "shared_intermediate_size": 32, "layer_types": HYBRID},
    ),
    "granitemoehybrid, dense": (
        "GraniteMoeHybrid",
        {**MAMBA, "num_local_experts": 0, "shared_intermediate_size": 32, "layer_types": HYBRID},
    ),
    "bamba": ("Bamba", {**MAMBA, "attn_layer_indices": [2, 5]}),
    "falcon_h1": ("FalconH1", {**MAMBA, "mamba_d_ssm": 96, "mamba_rms_norm": True}),
    "jamba": (
        "Jamba",
        {"num_experts": 6, "attn_layer_period": 4, "attn_layer_offset": 2, "mamba_d_state": 4, "head_dim": 8},
    ),
    "nemotron_h": (
        "NemotronH",
        {"hybrid_override_pattern": "ME*-MEM", "mamba_num_heads": 12, "mamba_head_dim": 8, "ssm_state_size": 16}
        | {"n_groups": 2, **EXPERTS, "moe_latent_size": 20, "moe_shared_expert_intermediate_size": 28},
    ),
    "lfm2": ("Lfm2", {"full_attn_idxs": [2, 5], "head_dim": 8, "conv_bias": True}),
    "lfm2_moe": (
        "Lfm2Moe",
        {"layer_types": CONVOLVED, "head_dim": 8, "num_experts": 6, "moe_intermediate_size": 24},
    ),
    "mimo_v2_flash": (
        "MiMoV2Flash",
        {**EXPERTS, "n_shared_experts": None, "v_head_dim": 12, "sliding_window": 8, "num_key_value_heads": 1},
    ),
    "phi3": ("Phi3", {"head_dim": 8}),
    "smollm3": ("SmolLM3", {}),
    "seed_oss": ("SeedOss", {"attention_bias": False, "attention_out_bias": False}),
    "dots1": ("Dots1", {**EXPERTS, "first_k_dense_replace": 1}),
    "exaone4": ("Exaone4", {"sliding_window": 8, "sliding_window_pattern": 4}),
    "glm4": ("Glm4", {"attention_bias": True}),
}
# transformers has none of these as a model of text alone, or as a class of its own
ELSEWHERE = {"kimi_k2", "minimax_text_01", "minimax_m1", "nemotron-nas", "mimo"}
ELSEWHERE |= {"minimax_m3", "minimax_m3_vl", "step3p5", "step3p7", "qwen3_vl_text", "qwen3_vl_moe_text"}


def test_every_family_is_held_against_transformers() -> None:
    assert {name.split(",")[0] for name in MODELS} == FAMILIES.keys() - ELSEWHERE


@pytest.mark.parametrize("name", MODELS)
def test_weights_and_caches_of_each_layer_are_those_of_transformers(tmp_path: Path, name: str) -> None:
    """Weights on torch's meta device, the cache as a pass of 5 tokens fills it. Kimi K2 is DeepSeek-V3's class."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch = pytest.importorskip("torch", reason="torch is not installed")
    prefix, given = MODELS[name]
    config_class = getattr(transformers, f"{prefix}TextConfig", None) or getattr(transformers, f"{prefix}Config")
    config = config_class(
        **{key: value for key, value in {**COMMON, **given}.items() if key not in WITHOUT.get(name.split(",")[0], ())}
    )
    config.save_pretrained(tmp_path)
    model = getattr(transformers, f"{prefix}ForCausalLM")(config).eval()
    shape = read_shape(tmp_path)
    assert shape.num_parameters == sum(weight.numel() for weight in model.parameters())
    layers = next(each for each in model.modules() if isinstance(each, torch.nn.ModuleList))
    for index, layer in enumerate(layers):
        ours = shape.layers[index]
        experts = ours.has_experts * shape.num_experts * shape.expert_parameters
        assert ours.shared_parameters + ours.small_parameters + experts == sum(
            weight.numel() for weight in layer.parameters()
        ), index
    with torch.no_grad():
        cache = model(torch.zeros(1, 5, dtype=torch.long), use_cache=True).past_key_values
    for index, (kept, ours) in enumerate(zip(cache.layers, shape.layers, strict=True)):
        of_tokens = [getattr(kept, key, None) for key in ("keys", "values", "indexer_keys", "idx_keys")]
        copies = 3 if name == "falcon" else 1  # transformers keeps keys and values for each of the queries' heads
        values = sum(each.numel() for each in of_tokens if torch.is_tensor(each))
        assert ours.cached_values * copies == values // 5, index
        states = [*getattr(kept, "conv_states", {}).values(), *getattr(kept, "recurrent_states", {}).values()]
        if name != "minimax":  # whose states transformers keeps elsewhere
            assert ours.state_values == sum(each.numel() for each in states if torch.is_tensor(each)), index
    assert shape.weight_bytes(2.0) == 2 * (shape.num_parameters + shape.draft_parameters)
    assert shape.kv_bytes_per_token(2.0) == 2 * sum(layer.cached_values for layer in shape.layers)


DEEPSEEK_V3: dict[str, Any] = {
    "model_type": "deepseek_v3",
    "architectures": ["DeepseekV3ForCausalLM"],
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 129280,
    "max_position_embeddings": 163840,
    "tie_word_embeddings": False,
    "num_nextn_predict_layers": 1,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"},
}


@pytest.mark.parametrize("model_type", ["deepseek_v3", "kimi_k2"])
def test_deepseek_v3_is_as_large_as_it_says(tmp_path: Path, model_type: str) -> None:
    """671e9 parameters, 37e9 of them active (arXiv 2412.19437, section 4.2), and 70,272 bytes of cache a token."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(DEEPSEEK_V3 | {"model_type": model_type}), encoding="utf-8")
    shape = read_shape(path)
    assert round(shape.num_parameters / 1e9) == 671
    assert round(shape.num_active_parameters / 1e9) == 37
    assert shape.kv_bytes_per_token(2.0) == 61 * 576 * 2
    assert shape.weight_bytes(2.0) == pytest.approx(684.8e9, rel=2e-3)
    assert kv_copies(shape, 8) == 8
    assert stated_context_tokens(str(path)) == 163_840
    assert any("1 layers that predict further tokens" in words for words in shape.doubts)


@pytest.mark.parametrize(
    ("change", "words", "kept"),
    [
        ({}, "2 layers read keys and values of others, and keep none of their own", 5),
        ({"num_kv_shared_layers": 0, "max_position_embeddings": 8}, "windows of 8 tokens are no shorter than the", 7),
    ],
)
def test_what_a_cache_does_not_keep_is_said(tmp_path: Path, change: dict[str, Any], words: str, kept: int) -> None:
    config = {**COMMON, **GEMMA4, "model_type": "gemma4_text", **change}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    shape = read_shape(tmp_path)
    assert any(words in each for each in shape.doubts)
    assert sum(layer.cached_values > 0 for layer in shape.layers) == kept


def test_a_rank_that_is_left_out_is_that_of_the_family(tmp_path: Path) -> None:
    """Without it DeepSeek's layers would keep keys and values of every head."""
    path = tmp_path / "config.json"
    read = []
    for left_out in ((), ("kv_lora_rank",)):
        given = {key: value for key, value in DEEPSEEK_V3.items() if key not in left_out}
        path.write_text(json.dumps(given), encoding="utf-8")
        read.append(read_shape(tmp_path))
    assert read[0] == read[1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"architectures": ["DeepseekV3ForSequenceClassification"]}, "other classes have other layers"),
        ({"kv_lora_rank": 0}, "kv_lora_rank is 0; want a whole number"),
        ({"num_nextn_predict_layers": ["x"]}, r"num_nextn_predict_layers is \[.x.\]; want a number from 0 to"),
        ({"model_type": ["deepseek_v3"]}, r"model_type is \[.deepseek_v3.\]; want a text"),
        ({"use_cla": True}, r"use_cla \(keys and values that groups of layers share\), which is not modelled"),
        ({"use_mla": True}, "use_mla .*, which is not modelled"),
        ({"n_routed_experts": "many"}, "n_routed_experts is 'many'"),
        ({"num_experts_per_tok": 257}, "num_experts_per_tok is 257; want 256 at most, the number of experts"),
        (
            {"num_hidden_layers": 2, "layer_types": ["full_attention", "linear_attention"]},
            "layer_types has linear attention, and no key is of its state",
        ),
    ],
)
def test_what_is_not_modelled_is_refused_by_name(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(DEEPSEEK_V3 | change), encoding="utf-8")
    with pytest.raises(ConfigError, match=words):
        read_shape(tmp_path)
