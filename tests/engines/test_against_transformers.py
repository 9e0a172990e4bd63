"""The decoder beside a second library: transformers' Llama and Qwen3 on the same weights give the same tokens.

Skipped unless torch and transformers are installed; the float64 oracle beside this file always runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from small_decoders import small_decoder  # noqa: E402

from pytest_npubench.backends import backend  # noqa: E402 - after the skips above
from pytest_npubench.engines.jax_dense.engine import StaticBucketEngine  # noqa: E402
from pytest_npubench.engines.shapes import DecoderShape, RopeScaling  # noqa: E402

from .decoders import soak_but_first  # noqa: E402

BUCKETS = (16, 32, 64)
LLAMA = small_decoder(
    "oracle-llama",
    vocab_size=97,
    num_layers=3,
    num_heads=8,
    head_dim=8,
    rope_theta=500_000.0,
    rope_scaling=RopeScaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=32),
)
QWEN = small_decoder(
    "oracle-qwen",
    vocab_size=101,
    hidden=48,
    num_kv_heads=4,
    intermediate=80,
    rope_theta=1_000_000.0,
    rms_eps=1e-6,
    qk_norm=True,
    tied_embeddings=False,
)


@pytest.mark.parametrize("shape", soak_but_first([LLAMA, QWEN]), ids=lambda shape: shape.name)
def test_same_tokens_as_transformers(shape: DecoderShape) -> None:
    host = backend("cpu")
    engine = StaticBucketEngine(shape, host.open(host.probe(1).devices, None), buckets=BUCKETS, batch_size=3, seed=5)
    model = _model(shape, engine.weights)
    generator = np.random.default_rng(3)
    prompts = [generator.integers(0, shape.vocab_size, length, dtype=np.int32) for length in (15, 16, 17)]
    tokens = engine.generate(prompts, [20, 35, 4]).tokens
    for prompt, produced in zip(prompts, tokens, strict=True):
        with torch.no_grad():
            expected = model.generate(
                torch.tensor(prompt[None].astype(np.int64)), max_new_tokens=len(produced), do_sample=False
            )
        assert produced == tuple(expected[0, len(prompt) :].tolist())


def _model(shape: DecoderShape, weights: Any) -> Any:
    """transformers' model of the shape, in float64, with our weights; its linear layers are ours transposed."""
    common = {
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "rms_norm_eps": shape.rms_eps,
        "tie_word_embeddings": shape.tied_embeddings,
        "max_position_embeddings": 128,
        "eos_token_id": None,
        "bos_token_id": None,
        "pad_token_id": None,
    }
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": shape.rope_theta}
    if shape.rope_scaling is not None:
        scaling = shape.rope_scaling
        rope |= {
            "rope_type": "llama3",
            "factor": scaling.factor,
            "low_freq_factor": scaling.low_freq_factor,
            "high_freq_factor": scaling.high_freq_factor,
            "original_max_position_embeddings": scaling.original_context,
        }
    family = "Qwen3" if shape.qk_norm else "Llama"
    config = getattr(transformers, f"{family}Config")(**common, rope_parameters=rope)
    model = getattr(transformers, f"{family}ForCausalLM")(config).to(torch.float64).eval()
    model.load_state_dict(_state(shape, weights), strict=True)
    return model


def _state(shape: DecoderShape, weights: Any) -> dict[str, Any]:
    def tensor(array: Any, *, transposed: bool = False) -> Any:
        values = np.asarray(array, dtype=np.float64)
        return torch.tensor(values.T.copy() if transposed else values)

    embedding = tensor(weights["embedding"])
    state = {
        "model.embed_tokens.weight": embedding,
        "model.norm.weight": tensor(weights["final_norm"]),
        "lm_head.weight": embedding if shape.tied_embeddings else tensor(weights["head"]),
    }
    linear = {
        "self_attn.q_proj": "wq",
        "self_attn.k_proj": "wk",
        "self_attn.v_proj": "wv",
        "self_attn.o_proj": "wo",
        "mlp.gate_proj": "w_gate",
        "mlp.up_proj": "w_up",
        "mlp.down_proj": "w_down",
    }
    norms = {"input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm"}
    if shape.qk_norm:
        norms |= {"self_attn.q_norm": "q_norm", "self_attn.k_norm": "k_norm"}
    for index, layer in enumerate(weights["layers"]):
        prefix = f"model.layers.{index}."
        state |= {f"{prefix}{name}.weight": tensor(layer[key], transposed=True) for name, key in linear.items()}
        state |= {f"{prefix}{name}.weight": tensor(layer[key]) for name, key in norms.items()}
    return state
