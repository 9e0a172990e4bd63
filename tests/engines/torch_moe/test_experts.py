"""Products by expert against one token at a time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.nn.functional as F  # noqa: E402

from pytest_npubench.engines.torch_moe.experts import (  # noqa: E402
    FusedGroups,
    LoopedGroups,
    distinct_experts,
    fuses,
    mix_experts,
)
from pytest_npubench.engines.torch_moe.weights import random_weights  # noqa: E402

from .small_shapes import GPT_OSS, QWEN_MOE  # noqa: E402


def layer_of(shape: Any) -> Any:
    return random_weights(shape, seed=1, device=torch.device("cpu"), dtype=torch.float32).layers[0]


def one_token(shape: Any, weights: Any, token: Any, expert: int) -> Any:
    """As the papers write it, gates and linear halves apart."""
    gate, up = (weights.gate_up[expert] @ token).split(shape.intermediate)
    if shape is QWEN_MOE:
        return weights.down[expert] @ (gate * torch.sigmoid(gate) * up)
    bias = weights.gate_up_bias[expert].split(shape.intermediate)
    gate, up = (gate + bias[0]).clamp(max=7), (up + bias[1]).clamp(-7, 7)
    return weights.down[expert] @ (gate * torch.sigmoid(1.702 * gate) * (up + 1)) + weights.down_bias[expert]


@pytest.mark.parametrize("shape", [QWEN_MOE, GPT_OSS], ids=lambda shape: shape.name)
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000), num_tokens=st.integers(1, 9))
def test_a_token_at_a_time(shape: Any, seed: int, num_tokens: int) -> None:
    generator, weights = torch.Generator().manual_seed(seed), layer_of(shape)
    hidden = 8 * torch.randn(num_tokens, shape.hidden, generator=generator)
    experts = torch.stack(
        [torch.randperm(shape.num_experts, generator=generator)[: shape.experts_per_token] for _ in range(num_tokens)]
    )
    shares = torch.rand(experts.shape, generator=generator)
    expected = torch.stack(
        [
            sum(share * one_token(shape, weights, token, expert) for expert, share in zip(row, rest, strict=True))
            for token, row, rest in zip(hidden, experts.tolist(), shares, strict=True)
        ]
    )
    torch.testing.assert_close(mix_experts(shape, weights, hidden, experts, shares), expected, rtol=1e-4, atol=1e-4)


def test_distinct_experts_of_the_docstring() -> None:
    layer = torch.tensor([[1, 2], [2, 5], [2, 1]])
    assert distinct_experts(torch.stack((layer, torch.full_like(layer, 7))), 8).tolist() == [3 + 1]


@pytest.mark.skipif(not hasattr(F, "grouped_mm"), reason="this torch has no grouped_mm")
def test_one_kernel_for_all_experts() -> None:
    """Experts without rows, the first and the last among them."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(12, 16, generator=generator).bfloat16()
    matrices = torch.randn(6, 24, 16, generator=generator).bfloat16()
    looped = LoopedGroups([1, 2, 4], [3, 8, 1]).product(rows, matrices)
    fused = FusedGroups(torch.tensor([0, 3, 11, 11, 12, 12], dtype=torch.int32)).product(rows, matrices)
    torch.testing.assert_close(fused, looped, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(("major", "is_one_kernel"), [(8, False), (9, True), (10, True), (11, False), (12, False)])
def test_experts_are_fused_where_that_is_one_kernel(monkeypatch: Any, major: int, is_one_kernel: bool) -> None:
    """FAKE matrices of a GPU: elsewhere torch would multiply for every expert, those without a row too."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (major, 0))
    matrices = SimpleNamespace(is_cuda=True, dtype=torch.bfloat16, device="cuda:0")
    assert fuses(matrices) is (is_one_kernel and hasattr(F, "grouped_mm"))
