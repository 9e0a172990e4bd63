"""The small decoder of the tests: a test's own shape says only in what it differs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pytest_npubench.engines.shapes import DecoderShape, ExpertShape

SMALL = DecoderShape(
    name="small",
    source="these tests",
    vocab_size=128,
    hidden=64,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    intermediate=96,
    rope_theta=10_000.0,
    rms_eps=1e-5,
    tied_embeddings=True,
)


def small_decoder(name: str, **differences: Any) -> DecoderShape:
    return replace(SMALL, name=name, **differences)


def small_mixture(name: str, num_experts: int, experts_per_token: int, **differences: Any) -> DecoderShape:
    """Of four layers with the experts and the norms of Qwen3."""
    experts = ExpertShape(num_experts=num_experts, experts_per_token=experts_per_token)
    return small_decoder(name, **{"num_layers": 4, "qk_norm": True, "rms_eps": 1e-6, "experts": experts, **differences})
