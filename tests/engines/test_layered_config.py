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
}
EXPERTS = {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "n_shared_experts": 2}
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
    "gemma2": ("Gemma2", {"sliding_window": 8}),
    "gemma3_text": ("Gemma3", {"sliding_window": 8}),
}


def test_every_family_is_held_against_transformers() -> None:
    assert {name.split(",")[0] for name in MODELS} == FAMILIES.keys() - {"kimi_k2"}


@pytest.mark.parametrize("name", MODELS)
def test_parameters_of_each_layer_are_those_of_transformers(tmp_path: Path, name: str) -> None:
    """Kimi K2 is DeepSeek-V3's class. Windows are those of the class's own layers."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch = pytest.importorskip("torch", reason="torch is not installed")
    prefix, given = MODELS[name]
    config_class = {"Gemma3": "Gemma3TextConfig"}.get(prefix, f"{prefix}Config")
    config = getattr(transformers, config_class)(**{**COMMON, **given})
    config.save_pretrained(tmp_path)
    with torch.device("meta"):
        model = getattr(transformers, f"{prefix}ForCausalLM")(config)
    shape = read_shape(tmp_path)
    assert shape.num_parameters == sum(weight.numel() for weight in model.parameters())
    for index, layer in enumerate(model.model.layers):
        ours = shape.layers[index]
        experts = ours.has_experts * shape.num_experts * shape.expert_parameters
        assert ours.shared_parameters + ours.small_parameters + experts == sum(
            weight.numel() for weight in layer.parameters()
        ), index
        assert ours.window == (getattr(layer.self_attn, "sliding_window", None) or None), index
        if (keys := getattr(layer.self_attn, "k_proj", None)) is not None:
            assert ours.kv_values == 2 * keys.weight.shape[0]
        else:
            assert ours.kv_values == layer.self_attn.kv_a_proj_with_mqa.weight.shape[0]
    assert shape.weight_bytes(2.0) == 2 * shape.num_parameters
    assert shape.kv_bytes_per_token(2.0) == 2 * sum(layer.kv_values for layer in shape.layers)


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
    assert shape.weight_bytes(2.0) == pytest.approx(673.2e9, rel=2e-3)
    assert kv_copies(shape, 8) == 8
    assert stated_context_tokens(str(path)) == 163_840
    assert any("num_nextn_predict_layers: not read" in words for words in shape.doubts)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"architectures": ["DeepseekV3ForSequenceClassification"]}, "other classes have other layers"),
        ({"kv_lora_rank": 0}, "kv_lora_rank is 0; want a whole number"),
        ({"n_routed_experts": "many"}, "n_routed_experts is 'many'"),
        (
            {"num_hidden_layers": 2, "layer_types": ["full_attention", "linear_attention"]},
            "'linear_attention' for layer 1",
        ),
    ],
)
def test_what_is_not_modelled_is_refused_by_name(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(DEEPSEEK_V3 | change), encoding="utf-8")
    with pytest.raises(ConfigError, match=words):
        read_shape(tmp_path)
