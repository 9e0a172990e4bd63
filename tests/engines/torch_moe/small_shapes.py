"""Small decoders that between them hold every part of the engine; small enough that a test takes a second."""

from __future__ import annotations

import dataclasses

from small_decoders import small_mixture

from pytest_npubench.engines.shapes import ExpertShape

QWEN_MOE = small_mixture("test-qwen-moe", 10, 3, vocab_size=101, hidden=48, num_layers=5, num_heads=6, intermediate=24)
QWEN_DENSE = dataclasses.replace(
    QWEN_MOE,
    name="test-qwen-dense",
    num_layers=4,
    experts=None,
    intermediate=80,
    tied_embeddings=False,
)
GPT_OSS = dataclasses.replace(
    QWEN_MOE,
    name="test-gpt-oss",
    architecture="gpt-oss",
    qk_norm=False,
    num_heads=4,
    num_kv_heads=1,
    experts=ExpertShape(num_experts=6, experts_per_token=2),
    rope_theta=150_000.0,
    rms_eps=1e-5,
    tied_embeddings=False,
    sliding_window=8,
)
SHAPES = (QWEN_MOE, QWEN_DENSE, GPT_OSS)
