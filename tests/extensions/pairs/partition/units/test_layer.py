"""A decoder layer on the pair against numpy in float64, written from the formulas."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_npubench.core.measurement import Phase
from pytest_npubench.errors import PartitionError, RegistryError
from pytest_npubench.extensions.pairs.partition.layer import OPERATORS, DecoderLayer, LayerShape, stages_of
from pytest_npubench.extensions.pairs.partition.matmul import Split
from pytest_npubench.extensions.pairs.partition.units.host_pair import HostPair

from .processes import rows_shared

SHAPE = LayerShape(hidden=32, num_heads=4, num_kv_heads=2, head_dim=8, intermediate=48)
SEPARATE = OPERATORS[:7]
FUSED = ("attention_qkv", "attention_output", "ffn_gate_up", "ffn_down")
CASES = [(SEPARATE, 6, 0), (SEPARATE, 1, 9), (FUSED, 6, 0), (FUSED, 1, 9), (("ffn_up",), 3, 5)]


def splits_of(names: tuple[str, ...], num_tokens: int) -> dict[str, Split]:
    """A quarter of the rows on the GPU; prefill padded to 8 tokens on the NPU."""
    matmuls = {name: SHAPE.matmul(name, num_tokens) for name in names}
    padded = 8 if num_tokens > 1 else 1
    return {name: rows_shared(matmul, matmul.rows // 4, padded) for name, matmul in matmuls.items()}


def expected(shape: LayerShape, operands: dict[str, np.ndarray], context: int) -> np.ndarray:
    arrays = {name: array.astype(np.float64) for name, array in operands.items()}
    if "attention_qkv" in arrays:
        sizes = np.cumsum([shape.num_heads, shape.num_kv_heads]) * shape.head_dim
        parts = np.split(arrays["attention_qkv"], sizes)
        arrays |= dict(zip(("attention_q", "attention_k", "attention_v"), parts, strict=True))
    if "ffn_gate_up" in arrays:
        arrays["ffn_gate"], arrays["ffn_up"] = np.split(arrays["ffn_gate_up"], 2)
    hidden = arrays["hidden"]
    normed = norm(hidden, 1 + arrays["norms"][0])
    attended = attention(shape, arrays, normed, context)
    hidden = hidden + attended @ arrays["attention_output"].T
    normed = norm(hidden, 1 + arrays["norms"][1])
    gate, up = normed @ arrays["ffn_gate"].T, normed @ arrays["ffn_up"].T
    return hidden + (gate / (1 + np.exp(-gate)) * up) @ arrays["ffn_down"].T


def norm(hidden: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return hidden / np.sqrt((hidden**2).mean(axis=1, keepdims=True) + 1e-5) * weight


def attention(shape: LayerShape, arrays: dict[str, np.ndarray], normed: np.ndarray, context: int) -> np.ndarray:
    """Token by token and head by head."""
    num_tokens, dim = len(normed), shape.head_dim
    out = np.zeros((num_tokens, shape.num_heads, dim))
    for head in range(shape.num_heads):
        kv = head // (shape.num_heads // shape.num_kv_heads)
        keys, values = list(arrays["cache"][0, kv, :context]), list(arrays["cache"][1, kv, :context])
        for token in range(num_tokens):
            query, key, value = (
                arrays[f"attention_{letter}"][which * dim : (which + 1) * dim] @ normed[token]
                for letter, which in (("q", head), ("k", kv), ("v", kv))
            )
            keys.append(rotated(key, context + token, shape.rope_theta))
            values.append(value)
            scores = np.array(keys) @ rotated(query, context + token, shape.rope_theta) / np.sqrt(dim)
            weights = np.exp(scores - scores.max())
            out[token, head] = weights / weights.sum() @ np.array(values)
    return out.reshape(num_tokens, -1)


def rotated(vector: np.ndarray, position: int, theta: float) -> np.ndarray:
    """Pair (i, i + D/2) turned as a complex number by position * theta^(-2i/D)."""
    half = len(vector) // 2
    turned = (vector[:half] + 1j * vector[half:]) * np.exp(1j * position * theta ** (-np.arange(half) / half))
    return np.concatenate([turned.real, turned.imag])


@pytest.mark.parametrize(("names", "num_tokens", "context"), CASES)
def test_a_layer_computes_what_the_formulas_say(
    pair: HostPair, names: tuple[str, ...], num_tokens: int, context: int
) -> None:
    pair.unload()
    splits = splits_of(names, num_tokens)
    layer = DecoderLayer(pair, SHAPE, splits=splits, num_tokens=num_tokens, context=context)
    reference = expected(SHAPE, layer.operands(), context)
    for mechanism in pair.mechanisms:
        timing = layer.run(mechanism=mechanism)
        np.testing.assert_allclose(layer.output(), reference, rtol=1e-3, atol=1e-4)
        assert len(timing.stages) == 4
        assert timing.other_s > 0
        assert timing.sync_s >= 0
    layer.run_alone()
    np.testing.assert_allclose(layer.output(), reference, rtol=1e-3, atol=1e-4)
    assert layer.phase is (Phase.DECODE if context else Phase.PREFILL)


def test_every_split_operator_runs_on_both_units(pair: HostPair) -> None:
    pair.unload()
    layer = DecoderLayer(pair, SHAPE, splits=splits_of(FUSED, 4), num_tokens=4)
    assert all(stage.npu_s and stage.gpu_s for stage in layer.run().stages)
    assert not any(stage.npu_s for stage in layer.run_alone().stages)
    assert set(layer.compile_s) == {(48, 32, 8), (24, 32, 8), (72, 32, 8), (24, 48, 8)}


def test_stages_follow_the_names_of_the_splits() -> None:
    assert [len(stage) for stage in stages_of({})] == [3, 1, 2, 1]
    assert [len(stage) for stage in stages_of(splits_of(FUSED, 1))] == [1, 1, 1, 1]
    with pytest.raises(PartitionError, match="splits name attention_qkv and attention_k: want one of them"):
        stages_of(splits_of(("attention_qkv", "attention_k"), 1))


def test_shapes_and_splits_that_cannot_be(pair: HostPair) -> None:
    with pytest.raises(PartitionError, match="has no operator lm_head; it has attention_q"):
        DecoderLayer(pair, SHAPE, splits={"lm_head": splits_of(("ffn_up",), 1)["ffn_up"]}, num_tokens=1)
    with pytest.raises(PartitionError, match="is no part of it"):
        DecoderLayer(pair, SHAPE, splits=splits_of(("ffn_up",), 4), num_tokens=3)
    odd = LayerShape(hidden=32, num_heads=4, num_kv_heads=3, head_dim=8, intermediate=48)
    with pytest.raises(PartitionError, match="num_heads a multiple of num_kv_heads"):
        DecoderLayer(pair, odd, splits={}, num_tokens=1)
    with pytest.raises(PartitionError, match="object runs single operators only"):
        DecoderLayer(object(), SHAPE, splits={}, num_tokens=1)


def test_an_unloaded_layer_says_so(pair: HostPair) -> None:
    layer = DecoderLayer(pair, SHAPE, splits={}, num_tokens=1)
    with pytest.raises(RegistryError, match="no synchronisation 'fence'"):
        layer.run(mechanism="fence")
    pair.unload()
    with pytest.raises(PartitionError, match="no decoder layer was opened"):
        layer.run()
