"""Bits of quantised weights, worked by hand for every method, and what is refused or doubted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_npubench.engines.hf_config import read_shape
from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.errors import ConfigError

# 2 layers: attention 2 x 32 x 8 x (4 + 2) = 3,072; feed-forward 3 x 32 x 64 = 6,144; norms 64; tables 2 x 100 x 32
MODEL: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 100,
}
ATTENTION, FEED_FORWARD, REST = 2 * 3072, 2 * 6144, 2 * 64 + 6400 + 32
GROUP = {"weights": {"num_bits": 4, "type": "int", "group_size": 128}, "targets": ["Linear"]}
FP8 = {"weights": {"num_bits": 8, "type": "float"}, "input_activations": {"num_bits": 8, "type": "float"}}
FP4 = {"weights": {"num_bits": 4, "type": "float", "group_size": 16}}


def shape_with(tmp_path: Path, change: dict[str, Any], beside: object = None) -> DecoderShape:
    (tmp_path / "config.json").write_text(json.dumps(MODEL | change), encoding="utf-8")
    if beside is not None:
        (tmp_path / "hf_quant_config.json").write_text(json.dumps(beside), encoding="utf-8")
    return read_shape(tmp_path)


def quantised(**table: Any) -> dict[str, Any]:
    return {"quantization_config": table}


@pytest.mark.parametrize(
    ("change", "bits"),
    [
        (quantised(quant_method="fp8", activation_scheme="dynamic"), 8),
        (quantised(quant_method="fp8", weight_block_size=[128, 128]), 8 + 32 / 16384),
        (quantised(quant_method="compressed-tensors", config_groups={"group_0": FP8}, ignore=["lm_head"]), 8),
        (quantised(quant_method="compressed-tensors", config_groups={"a": GROUP}), 4.125),
        (quantised(quant_method="compressed-tensors", config_groups={"a": FP4}), 4.5),
        (quantised(quant_method="awq", bits=4, group_size=128, zero_point=True), 4 + 20 / 128),
        (quantised(quant_method="gptq", bits=8, group_size=-1), 8),
        (quantised(quant_method="bitsandbytes", load_in_4bit=True), 4.5),
        (quantised(quant_method="bitsandbytes", load_in_4bit=True, bnb_4bit_use_double_quant=True), 4.126953125),
        (quantised(quant_method="bitsandbytes", load_in_8bit=True), 8),
        (quantised(quant_method="modelopt", quant_algo="FP8"), 8),
        (quantised(quant_method="modelopt", quant_algo="NVFP4"), 4.5),
        (quantised(quant_method="quanto", weights="int8"), 8),
        (quantised(quant_method="torchao", quant_type={"default": {"_type": "Int4WeightOnlyConfig"}}), 4),
        (quantised(quant_method="torchao", quant_type="int8_dynamic_activation_int4_weight"), 4),
        (quantised(quant_method="torchao", quant_type="float8_dynamic_activation_int4_weight"), 4),
    ],
)
def test_a_checkpoint_s_bits_count(tmp_path: Path, change: dict[str, Any], bits: float) -> None:
    shape = shape_with(tmp_path, change)
    assert shape.weight_bytes(2.0) == pytest.approx((ATTENTION + FEED_FORWARD) * bits / 8 + REST * 2)
    assert shape.kv_bytes_per_token(2.0) == 2 * 2 * 2 * 8 * 2  # keys and values stay as they are
    assert f"{bits:.4g} bits a weight" in shape.doubts[0]


def test_what_stays_as_it_is(tmp_path: Path) -> None:
    """Attention by its name, MLX's tables not, and single layers are doubted."""
    kept = quantised(quant_method="fp8", modules_to_not_convert=["lm_head", "self_attn"])
    assert shape_with(tmp_path, kept).weight_bytes(2.0) == FEED_FORWARD + (ATTENTION + REST) * 2
    mlx = shape_with(tmp_path, {"quantization": {"group_size": 64, "bits": 4}})
    assert mlx.weight_bytes(2.0) == pytest.approx((ATTENTION + FEED_FORWARD + 6400) * 4.5 / 8 + (REST - 6400) * 2)
    single = shape_with(tmp_path, quantised(quant_method="fp8", ignored_layers=["model.layers.0.mlp.down_proj"]))
    assert "1 modules that stay unquantised are counted as quantised, model.layers.0.mlp.down_proj" in single.doubts[1]
    false = shape_with(tmp_path, {"quantization": {"group_size": 64, "bits": 4, "model.layers.0.self_attn": False}})
    assert "1 modules that stay unquantised are counted as quantised, model.layers.0.self_attn" in false.doubts[1]


def test_groups_that_are_not_of_all_layers_are_doubted(tmp_path: Path) -> None:
    groups = {"a": GROUP, "b": FP8 | {"targets": ["re:.*self_attn.*"]}}
    shape = shape_with(tmp_path, quantised(quant_method="compressed-tensors", config_groups=groups))
    assert shape.weight_bytes(2.0) == ATTENTION + FEED_FORWARD + REST * 2
    assert (
        "groups of 4.125, 8 bits and groups of re:.*self_attn.*: all layers are counted with the most"
        in shape.doubts[1]
    )


def test_what_modelopt_says_beside_the_config(tmp_path: Path) -> None:
    beside = {"producer": {}, "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    shape = shape_with(tmp_path, {}, beside)
    assert shape.weight_bytes(2.0) == ATTENTION + FEED_FORWARD + REST * 2
    assert "scales for keys and values in fp8: they are so, unless --kv-dtype" in shape.doubts[1]


FLOAT8 = {"num_bits": 8, "type": "float", "dynamic": False}
COMPRESSED = {"quant_method": "compressed-tensors", "config_groups": {"group_0": FP8}}
MODELOPT = {"quant_method": "modelopt", "quant_algo": "FP8"}


@pytest.mark.parametrize(
    ("table", "kv_dtype"),
    [
        ({**COMPRESSED, "kv_cache_scheme": FLOAT8}, "fp8"),
        ({**COMPRESSED, "kv_cache_scheme": {**FLOAT8, "type": "int"}}, None),
        (COMPRESSED, None),
        ({**MODELOPT, "kv_cache_quant_algo": "FP8"}, "fp8"),
        ({**MODELOPT, "kv_cache_scheme": FLOAT8}, "fp8"),
        ({**MODELOPT, "kv_cache_quant_algo": "NVFP4"}, None),
        ({"quant_method": "modelopt", "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}, "fp8"),
        ({"quant_method": "fp8", "kv_cache_quant_algo": "FP8"}, None),
    ],
)
def test_keys_and_values_are_what_vllm_takes_them_for(
    tmp_path: Path, table: dict[str, Any], kv_dtype: str | None
) -> None:
    """As resolve_kv_cache_dtype_string and the attention layer of vLLM 0.32 make of `auto`; the rest is doubted."""
    shape = shape_with(tmp_path, {"quantization_config": table})
    assert shape.weight_bits is not None
    assert shape.weight_bits.kv_dtype == kv_dtype
    is_stated = "kv_cache" in json.dumps(table)
    assert any("--kv-dtype" in words for words in shape.doubts) == is_stated


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (quantised(quant_method="aqlm"), "quantization_config.quant_method is 'aqlm'; want one of fp8, "),
        (quantised(quant_method="awq"), "quantization_config of method awq says no bits a weight"),
        (quantised(quant_method="modelopt", quant_algo="MIXED_PRECISION"), "quant_algo is MIXED_PRECISION"),
        (quantised(quant_method="compressed-tensors", config_groups={}), "says no bits a weight"),
        ({"quantization_config": "fp8"}, "quantization_config is 'fp8'; want an object"),
        (quantised(quant_method="fp8", ignored_layers="lm_head"), "ignored_layers is 'lm_head'; want a list"),
        ({"model_type": "olmo2", "architectures": None, "max_position_embeddings": "4"}, "_embeddings is '4'; want"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "architectures is .*; want \\['LlamaForCausalLM'\\]"),
        ({"architectures": ["LlamaForCausalLMEagle3"]}, "other classes have other layers"),
    ],
)
def test_what_has_no_known_bits_or_layers_is_refused(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        shape_with(tmp_path, change)


def test_no_key_is_dropped_unseen(tmp_path: Path) -> None:
    shape = shape_with(tmp_path, {"num_kv_shared_layers": 1, "rope_theta": 1e4, "use_cache": True, "new_key": None})
    assert shape.doubts == ("config.json: num_kv_shared_layers: not read, whatever that changes",)
