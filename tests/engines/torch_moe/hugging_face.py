"""Tiny random models of transformers, saved as users would have them: the oracle of the engine's arithmetic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers

from pytest_npubench.engines.shapes import DecoderShape

YARN = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}


def random_model(shape: DecoderShape, seed: int) -> Any:
    """In fp32, with weights that make every part matter: no norm of one, no bias of zero."""
    config, family = _config(shape)
    model = getattr(transformers, f"{family}ForCausalLM")(config).float().eval()
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


def _config(shape: DecoderShape) -> tuple[Any, str]:
    common: dict[str, Any] = {
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "rms_norm_eps": shape.rms_eps,
        "tie_word_embeddings": shape.tied_embeddings,
        "eos_token_id": None,
        "bos_token_id": None,
        "pad_token_id": None,
    }
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": shape.rope_theta}
    if shape.architecture == "gpt-oss":
        experts = {
            "num_local_experts": shape.num_experts,
            "num_experts_per_tok": shape.experts_per_token,
            "intermediate_size": shape.intermediate,
            "sliding_window": shape.sliding_window,
        }
        return transformers.GptOssConfig(**common, **experts, rope_parameters=rope | YARN), "GptOss"
    if shape.is_dense:
        width = {"intermediate_size": shape.intermediate}
        return transformers.Qwen3Config(**common, **width, rope_parameters=rope), "Qwen3"
    experts = {
        "num_experts": shape.num_experts,
        "num_experts_per_tok": shape.experts_per_token,
        "moe_intermediate_size": shape.intermediate,
        "norm_topk_prob": True,
    }
    return transformers.Qwen3MoeConfig(**common, **experts, rope_parameters=rope), "Qwen3Moe"
