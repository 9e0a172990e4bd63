"""Models of transformers in our shapes, with weights of ours or random ones: the oracle of the engines' arithmetic."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pytest_npubench.engines.shapes import DecoderShape

YARN = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}
NAMES = {
    "self_attn.q_proj.weight": "wq",
    "self_attn.k_proj.weight": "wk",
    "self_attn.v_proj.weight": "wv",
    "self_attn.o_proj.weight": "wo",
    "self_attn.q_proj.bias": "bq",
    "self_attn.k_proj.bias": "bk",
    "self_attn.v_proj.bias": "bv",
    "self_attn.q_norm.weight": "q_norm",
    "self_attn.k_norm.weight": "k_norm",
    "mlp.gate_proj.weight": "w_gate",
    "mlp.up_proj.weight": "w_up",
    "mlp.down_proj.weight": "w_down",
    "mlp.gate.weight": "router",
    "mlp.router.weight": "router",
    "mlp.router.bias": "router_bias",
    "self_attn.o_proj.bias": "bo",
    "self_attn.sinks": "sinks",
    "input_layernorm.weight": "attention_norm",
    "post_attention_layernorm.weight": "ffn_norm",
}
"""What transformers calls a layer's tensors, and we."""


def random_model(shape: DecoderShape, seed: int) -> Any:
    """In fp32, with weights that make every part matter: no norm of one, no bias of zero."""
    model = _untrained(shape).float().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.uniform_(0.6, 1.4, generator=generator)
            elif "router.weight" in name or "gate.weight" in name:
                weight.normal_(0, 1.3 / shape.hidden**0.5, generator=generator)
            elif weight.dim() == 1 or name.endswith("bias"):
                weight.normal_(0, 0.5, generator=generator)
            else:
                weight.normal_(0, 1.5 / weight.shape[-1] ** 0.5, generator=generator)
    return model


def model_with(shape: DecoderShape, weights: Any) -> Any:
    """In float64, with the engine's weights."""
    model = _untrained(shape).to(torch.float64).eval()
    model.load_state_dict(_state(shape, weights, model.state_dict()), strict=True)
    return model


def save(model: Any, folder: Path, max_shard_size: str = "5GB") -> Path:
    model.save_pretrained(folder, max_shard_size=max_shard_size)
    return folder


@torch.no_grad()
def logits(model: Any, tokens: list[int]) -> torch.Tensor:
    """[tokens, vocab_size]"""
    result: torch.Tensor = model(torch.tensor([tokens]), use_cache=False).logits[0]
    return result


def greedy(model: Any, prompt: list[int], num_tokens: int) -> list[int]:
    """One whole forward pass a token: slow, and no cache to be wrong."""
    tokens = list(prompt)
    for _ in range(num_tokens):
        tokens.append(int(logits(model, tokens)[-1].argmax()))
    return tokens[len(prompt) :]


def _untrained(shape: DecoderShape) -> Any:
    import transformers  # 4 s, which the collection of tests need not take

    settings: dict[str, Any] = {
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "rms_norm_eps": shape.rms_eps,
        "tie_word_embeddings": shape.tied_embeddings,
        "eos_token_id": None,
        "bos_token_id": None,
        "pad_token_id": None,
        "rope_parameters": {"rope_type": "default", "rope_theta": shape.rope_theta},
    }
    if shape.rope_scaling is not None:
        scaling = asdict(shape.rope_scaling)
        scaling["original_max_position_embeddings"] = scaling.pop("original_context")
        settings["rope_parameters"] |= {"rope_type": "llama3", **scaling}
    family = "Qwen3" if shape.qk_norm else "Qwen2" if shape.qkv_bias else "Llama"
    if shape.architecture == "gpt-oss":
        family = "GptOss"
        settings |= {"num_local_experts": shape.num_experts, "sliding_window": shape.sliding_window}
        settings["rope_parameters"] |= YARN
    elif shape.experts is not None:
        family = "Qwen3Moe"
        settings |= {
            "num_experts": shape.num_experts,
            "moe_intermediate_size": shape.intermediate,
            "norm_topk_prob": True,
        }
    if shape.experts is not None:
        settings["num_experts_per_tok"] = shape.experts_per_token
    config = getattr(transformers, f"{family}Config")(**settings)
    config._experts_implementation = "eager"  # the others have no float64
    return getattr(transformers, f"{family}ForCausalLM")(config)


def _state(shape: DecoderShape, weights: Any, wanted: Any) -> dict[str, Any]:
    """Our weights by transformers' names, its matrices being ours transposed."""
    state = {
        "model.embed_tokens.weight": weights["embedding"],
        "model.norm.weight": weights["final_norm"],
        "lm_head.weight": weights.get("head", weights["embedding"]),
    }
    for index, layer in enumerate(weights["layers"]):
        prefix = f"model.layers.{index}."
        state |= {prefix + theirs: layer[ours].T for theirs, ours in NAMES.items() if ours in layer}
        if shape.experts is not None:
            gate, up, down = (layer[name].swapaxes(1, 2) for name in ("w_gate", "w_up", "w_down"))
            for expert in range(shape.num_experts):
                for name, values in (("gate", gate), ("up", up), ("down", down)):
                    state[f"{prefix}mlp.experts.{expert}.{name}_proj.weight"] = values[expert]
            state[f"{prefix}mlp.experts.gate_up_proj"] = np.concatenate([gate, up], axis=1)
            state[f"{prefix}mlp.experts.down_proj"] = down
        if shape.architecture == "gpt-oss":  # gate and up take turns, and experts are [in, out] as ours
            experts = f"{prefix}mlp.experts."
            state[f"{experts}gate_up_proj"] = np.stack([layer["w_gate"], layer["w_up"]], -1).reshape(6, 64, 96)
            state[f"{experts}gate_up_proj_bias"] = np.stack([layer["b_gate"], layer["b_up"]], -1).reshape(6, 96)
            state |= {f"{experts}down_proj": layer["w_down"], f"{experts}down_proj_bias": layer["b_down"]}
    return {name: torch.tensor(np.array(state[name], np.float64)) for name in wanted}
