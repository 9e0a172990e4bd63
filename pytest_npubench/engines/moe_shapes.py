"""The older form of a shape with experts, for hooks and programs that were written for it.

DecoderShape (engines/shapes.py) is one record for dense decoders and those with experts; write that instead.
"""

from __future__ import annotations

from typing import Any, Literal

from pytest_npubench.engines.shapes import DecoderShape, ExpertShape, decoder_shape

moe_shape = decoder_shape


def MoeShape(
    *,
    architecture: Literal["qwen3", "gpt-oss"],
    num_experts: int,
    experts_per_token: int,
    expert_intermediate: int,
    **others: Any,
) -> DecoderShape:
    """num_experts = 1 is a dense decoder. Architecture "qwen3" has norms on each head's q and k."""
    return DecoderShape(
        architecture="gpt-oss" if architecture == "gpt-oss" else "llama",
        qk_norm=architecture == "qwen3",
        intermediate=expert_intermediate,
        experts=None if num_experts == 1 else ExpertShape(num_experts=num_experts, experts_per_token=experts_per_token),
        **others,
    )
