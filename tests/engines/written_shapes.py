"""Decoders small enough that vLLM starts in seconds, with what matters: grouped heads, several layers, experts."""

from __future__ import annotations

import dataclasses

from small_decoders import small_mixture

MOE = small_mixture("test-vllm-moe", 16, 2, vocab_size=512, hidden=128, head_dim=32, intermediate=64)
DENSE = dataclasses.replace(
    MOE,
    name="test-vllm-dense",
    experts=None,
    intermediate=160,
    tied_embeddings=False,
)
