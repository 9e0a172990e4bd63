"""The bytes counted from a shape are those of the arrays that an engine allocates, and of the published checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import pytest

from pytest_npubench.engines.jax_dense.memory import cache_bytes, weight_bytes
from pytest_npubench.engines.shapes import decoder_shape
from pytest_npubench.errors import ConfigError

from .conftest import Served
from .decoders import BATCH_SIZE, NORMED, SPLIT


def allocated(tree: Any) -> int:
    return sum(array.nbytes for array in jax.tree.leaves(tree))


def test_bytes_are_those_of_the_arrays(served: Served) -> None:
    engine = served.engine
    assert weight_bytes(engine.shape, "fp32") == allocated(engine.weights)
    assert cache_bytes(engine.shape, 16, BATCH_SIZE, "fp32") == allocated(engine._new_caches(16))


def test_llama_by_hand() -> None:
    """1,235,814,400 parameters, of them (2 * 16 + 1) * 2048 = 67,584 in norms; 16 * 8 * 64 * 2 of KV a token."""
    shape = decoder_shape("llama-3.2-1b")
    assert weight_bytes(shape, "bf16") == 2_471_628_800
    assert weight_bytes(shape, "bf16", 4) == 2 * ((1_235_814_400 - 67_584) // 4 + 67_584)
    assert cache_bytes(shape, 4096, 8, "bf16", 4) == 8 * 4096 * 16_384 * 2 // 4


def test_a_head_norm_lies_on_every_device() -> None:
    """q_norm and k_norm of head_dim each, in every layer."""
    whole = SPLIT.num_layers * (2 * SPLIT.hidden + 2 * SPLIT.head_dim) + SPLIT.hidden
    assert weight_bytes(SPLIT, "fp32", 2) * 2 == weight_bytes(SPLIT, "fp32") + 4 * whole


@pytest.mark.parametrize("count", [weight_bytes, lambda *args: cache_bytes(args[0], 8, 1, *args[1:])])
def test_what_cannot_be_counted_is_refused(count: Callable[..., int]) -> None:
    with pytest.raises(ConfigError, match="dtype 'fp8' is not one the decoder computes in: fp32, bf16, fp16"):
        count(NORMED, "fp8", 1)
    with pytest.raises(ConfigError, match="normed: num_kv_heads = 1 does not split over 2 devices"):
        count(NORMED, "bf16", 2)
