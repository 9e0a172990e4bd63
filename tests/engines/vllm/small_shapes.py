"""Decoders small enough that vLLM starts in seconds, with what matters: grouped heads, several layers, experts."""

from __future__ import annotations

import dataclasses

from pytest_npubench.engines.shapes import DecoderShape, ExpertShape

MOE = DecoderShape(
    name="test-vllm-moe",
    source="these tests",
    qk_norm=True,
    vocab_size=512,
    hidden=128,
    num_layers=4,
    num_heads=4,
    num_kv_heads=2,
    head_dim=32,
    experts=ExpertShape(num_experts=16, experts_per_token=2),
    intermediate=64,
    rope_theta=10_000.0,
    rms_eps=1e-6,
    tied_embeddings=True,
)
DENSE = dataclasses.replace(
    MOE,
    name="test-vllm-dense",
    experts=None,
    intermediate=160,
    tied_embeddings=False,
)
