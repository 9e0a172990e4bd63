"""A checkpoint's config.json against the shape it was asked for.

Worked example: qwen3-30b-a3b wants `"num_experts": 128`; a file that says 64 is refused with path, key, value and what
was wanted. Keys whose absence means something have that meaning here; all others must be there.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_npubench.engines.moe_shapes import MoeShape
from pytest_npubench.engines.torch_moe import experts, rope
from pytest_npubench.errors import ConfigError

MISSING = "missing"
# what a key means that is not there
DEFAULTS: dict[str, object] = {
    "rope_type": "default",
    "use_sliding_window": False,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_only_layers": [],
    "decoder_sparse_step": 1,
    "swiglu_limit": experts.SWIGLU_LIMIT,
    "swiglu_alpha": experts.SWIGLU_ALPHA,
}


def check_config(config: Mapping[str, Any], shape: MoeShape, path: Path) -> None:
    """Raises ConfigError naming the path, the first key that disagrees, its value and the one wanted."""
    if "quantization_config" in config:
        method = config["quantization_config"].get("quant_method", "some method")
        raise ConfigError(f"{path}: the tensors are quantised ({method}); want unquantised ones")
    for names, wanted in {**_common(shape), **_special(shape)}.items():
        found = _figure(config, names.split("|"))
        if found != wanted:
            raise ConfigError(f"{path}: {names.split('|')[0]} is {found!r}; {shape.name} wants {wanted!r}")


def _common(shape: MoeShape) -> dict[str, object]:
    """Figures that all architectures have. "a|b": either key, later versions having renamed it."""
    name = {"gpt-oss": "GptOss", "qwen3": "Qwen3" if shape.is_dense else "Qwen3Moe"}[shape.architecture]
    return {
        "architectures": [f"{name}ForCausalLM"],
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "rms_norm_eps": shape.rms_eps,
        "rope_theta": shape.rope_theta,
        "hidden_act": "silu",
        "tie_word_embeddings": shape.tied_embeddings,
        "attention_bias": shape.architecture == "gpt-oss",
    }


def _special(shape: MoeShape) -> dict[str, object]:
    if shape.architecture == "gpt-oss":
        return _gpt_oss(shape)
    plain = {"rope_type": "default", "use_sliding_window": False}
    if shape.is_dense:
        return {**plain, "intermediate_size": shape.expert_intermediate}
    return {
        **plain,
        "num_experts|num_local_experts": shape.num_experts,
        "num_experts_per_tok": shape.experts_per_token,
        "moe_intermediate_size": shape.expert_intermediate,
        "norm_topk_prob": True,
        "mlp_only_layers": [],
        "decoder_sparse_step": 1,
    }


def _gpt_oss(shape: MoeShape) -> dict[str, object]:
    kinds = ("sliding_attention", "full_attention")
    return {
        "num_local_experts|num_experts": shape.num_experts,
        "num_experts_per_tok|experts_per_token": shape.experts_per_token,
        "intermediate_size": shape.expert_intermediate,
        "sliding_window": shape.sliding_window,
        "layer_types": [kinds[layer % 2] for layer in range(shape.num_layers)],
        "swiglu_limit": experts.SWIGLU_LIMIT,
        "swiglu_alpha": experts.SWIGLU_ALPHA,
        "rope_type": "yarn",
        "factor": rope.YARN_FACTOR,
        "beta_fast": rope.YARN_BETA_FAST,
        "beta_slow": rope.YARN_BETA_SLOW,
        "original_max_position_embeddings": rope.YARN_ORIGINAL_CONTEXT,
        "truncate": False,
    }


def _figure(config: Mapping[str, Any], names: list[str]) -> object:
    """A key's value, wherever in the file it stands: rope's figures moved into an object of their own, twice."""
    places = (config, config.get("rope_parameters") or {}, config.get("rope_scaling") or {})
    for name in names:
        for place in places:
            if place.get(name) is not None:
                return place[name]
    return DEFAULTS.get(names[0], MISSING)
