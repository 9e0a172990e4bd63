"""Blocks are lent, addressed and taken back; what is not there is refused by name."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="torch is not installed")

from pytest_npubench.engines.torch_moe.kv_cache import PagedKvCache  # noqa: E402
from pytest_npubench.errors import ConfigError, MeasurementError  # noqa: E402

from .small_shapes import QWEN_DENSE  # noqa: E402


def cache(capacity_tokens: int = 24, block_size_tokens: int = 4) -> Any:
    return PagedKvCache(
        QWEN_DENSE,
        capacity_tokens=capacity_tokens,
        block_size_tokens=block_size_tokens,
        device=torch.device("cpu"),
        dtype=torch.float32,
    )


@settings(max_examples=30, deadline=None)
@given(steps=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30)), max_size=20))
def test_no_slot_is_lent_twice(steps: list[tuple[int, int]]) -> None:
    """Requests grow, and end where a step says 0 tokens; the model is a plain count of blocks."""
    kv, held = cache(), dict.fromkeys(range(4), 0)
    for request, num_tokens in steps:
        wanted = max(held[request], -(-num_tokens // 4)) if num_tokens else 0
        if num_tokens == 0:
            kv.free(request)
        elif sum(held.values()) - held[request] + wanted > 6:
            with pytest.raises(MeasurementError, match=f"request {request} needs .* blocks of 4 tokens"):
                kv.reserve(request, num_tokens)
            continue
        else:
            kv.reserve(request, num_tokens)
        held[request] = wanted
        slots = [slot for r, blocks in held.items() if blocks for slot in kv.slots(r, 0, 4 * blocks).tolist()]
        assert len(set(slots)) == len(slots) == 4 * sum(held.values())
        assert all(0 <= slot < kv.scratch_slot for slot in slots)
        assert kv.held_bytes == len(slots) * 2 * QWEN_DENSE.num_layers * QWEN_DENSE.num_kv_heads * 16 * 4


def test_slots_follow_positions() -> None:
    kv = cache()
    kv.reserve(1, 3)
    kv.reserve(2, 4)
    kv.reserve(1, 9)
    assert kv.slots(1, 2, 6).tolist() == [2, 3, 8, 9, 10, 11]
    assert kv.tables((2, 1)).tolist() == [[1, 0, 0], [0, 2, 3]]


def test_a_refused_request_keeps_what_it_has() -> None:
    kv = cache()
    kv.reserve(1, 17)
    with pytest.raises(MeasurementError, match="request 2 needs 2 more blocks of 4 tokens for 5 tokens; 1 of 6 are"):
        kv.reserve(2, 5)
    kv.reserve(2, 4)
    assert kv.slots(1, 16, 1).tolist() == [16]


@pytest.mark.parametrize(("capacity_tokens", "block_size_tokens"), [(3, 4), (0, 1), (8, 0), (-8, 4)])
def test_a_cache_of_nothing(capacity_tokens: int, block_size_tokens: int) -> None:
    with pytest.raises(ConfigError, match=f"{capacity_tokens} tokens in blocks of {block_size_tokens}"):
        cache(capacity_tokens, block_size_tokens)
