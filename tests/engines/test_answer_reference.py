"""The float64 reference of probe weights beside transformers' models, and the facts of the recipe."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from small_decoders import small_decoder

from pytest_npubench.engines.answer_reference import affordable_prompts, answer_reference
from pytest_npubench.engines.answers import distances
from pytest_npubench.engines.probe import (
    BLOCK,
    fixed_tokens,
    probe_prompts,
    probe_rows,
    probe_weights,
    rounded,
    weights_bits,
)
from pytest_npubench.engines.shapes import SHAPES, DecoderShape, ExpertShape, RopeScaling

WO_BITS = 3623292981
ROUNDED = 2e-5  # transformers norms, turns and takes softmax in float32, whatever its weights are

LLAMA = small_decoder(
    "reference-llama",
    vocab_size=97,
    num_heads=8,
    head_dim=8,
    rope_theta=500_000.0,
    rope_scaling=RopeScaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=32),
)
QWEN3 = dataclasses.replace(
    LLAMA, name="reference-qwen3", num_kv_heads=8, tied_embeddings=False, rope_scaling=None, qk_norm=True
)
QWEN2 = dataclasses.replace(LLAMA, name="reference-qwen2", rope_scaling=None, qkv_bias=True)
MOE = dataclasses.replace(
    QWEN3, name="reference-moe", intermediate=48, experts=ExpertShape(num_experts=6, experts_per_token=2)
)
GPT_OSS = dataclasses.replace(
    MOE, name="reference-gpt-oss", num_kv_heads=2, qk_norm=False, architecture="gpt-oss", sliding_window=8
)
PROMPTS = probe_prompts(97, (32, 64))


@pytest.mark.parametrize("shape", [LLAMA, QWEN3, QWEN2, MOE, GPT_OSS], ids=lambda shape: shape.name)
def test_the_reference_is_that_of_transformers_in_float64(shape: DecoderShape) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("transformers", reason="transformers is not installed")
    from .hugging_face import model_with

    model = model_with(shape, probe_weights(shape, "bf16"))
    reference = answer_reference(shape, "bf16", PROMPTS)
    assert reference.num_prompts == len(PROMPTS.lengths)
    for index in range(len(PROMPTS.lengths)):
        sequence = np.concatenate([PROMPTS.prompt(index), PROMPTS.forced(index)])
        with torch.no_grad():
            logits = model(torch.tensor(sequence[None].astype(np.int64))).logits[0].numpy()
        expected = logits[PROMPTS.positions(index)][:, fixed_tokens(shape.vocab_size)]
        np.testing.assert_allclose(reference.logits[index], expected, rtol=0, atol=ROUNDED)
        two = np.sort(logits[PROMPTS.positions(index)], axis=-1)[:, -2:]
        leads = (two[:, 1] - two[:, 0]) / reference.logits[index].std(axis=-1)
        np.testing.assert_allclose(
            reference.leads[index], leads, rtol=0, atol=3 * ROUNDED / expected.std(axis=-1).min()
        )
        clear = leads > 1e-3
        np.testing.assert_array_equal(
            reference.tokens[index][clear], logits[PROMPTS.positions(index)].argmax(axis=-1)[clear]
        )


@pytest.mark.parametrize("shape", [LLAMA, QWEN3], ids=lambda shape: shape.name)
def test_the_reference_is_exact_to_float64(shape: DecoderShape) -> None:
    """Beside the oracle of these tests, which runs one head at a time and turns complex numbers."""
    pytest.importorskip("jax", reason="the oracle's module imports jax")
    from . import oracle

    weights = probe_weights(shape, "fp32", lambda path, values: np.asarray(values, np.float64))
    reference = answer_reference(shape, "fp32", PROMPTS)
    for index in (1, len(PROMPTS.lengths) - 1):
        sequence = [*PROMPTS.prompt(index), *PROMPTS.forced(index)]
        expected = oracle.last_logits(shape, weights, sequence)[list(fixed_tokens(shape.vocab_size))]
        np.testing.assert_allclose(reference.logits[index, PROMPTS.num_forced], expected, rtol=0, atol=1e-12)


def test_a_reference_is_kept_and_read_back(tmp_path: Path) -> None:
    made = answer_reference(LLAMA, "fp32", PROMPTS, tmp_path)
    (file,) = tmp_path.iterdir()
    np.savez(file, **{**dataclasses.asdict(made), "logits": made.logits + 1, "rounding": 1.0, "largest": 2.0})
    again = answer_reference(LLAMA, "fp32", PROMPTS, tmp_path)
    assert (again.rounding, again.largest) == (1.0, 2.0)
    np.testing.assert_array_equal(again.logits, made.logits + 1)
    file.write_bytes(b"half of i")
    np.testing.assert_array_equal(answer_reference(LLAMA, "fp32", PROMPTS, tmp_path).logits, made.logits)
    assert answer_reference(LLAMA, "bf16", PROMPTS, tmp_path).rounding > 1000 * made.rounding
    assert len(list(tmp_path.iterdir())) == 2


def test_what_a_reference_costs_decides_who_has_one() -> None:
    lengths = (128, 256, 512, 1024, 2048, 4096)
    covered = {
        name: affordable_prompts(SHAPES[name], probe_prompts(SHAPES[name].vocab_size, lengths))
        for name in ("tiny-llama", "llama-3.2-1b", "qwen3-14b", "gpt-oss-20b")
    }
    assert covered["tiny-llama"] >= 6
    assert 2 <= covered["llama-3.2-1b"] < covered["tiny-llama"]
    assert covered["qwen3-14b"] == 0
    assert covered["gpt-oss-20b"] < 2
    wide = SHAPES["qwen3-14b"]
    none = answer_reference(wide, "bf16", probe_prompts(wide.vocab_size, lengths))
    assert none.num_prompts == 0
    assert 0.01 < none.rounding < 0.3


def test_prompts_lie_around_the_edges_and_neighbours_share_no_text() -> None:
    prompts = probe_prompts(1000, (128, 256))
    assert prompts.lengths == (5, 120, 128, 129, 244)
    assert max(prompts.lengths) + prompts.num_forced == 256
    for index in range(len(prompts.lengths) - 1):
        assert (prompts.prompt(index)[:5] != prompts.prompt(index + 1)[:5]).any()
        assert len(prompts.forced(index)) == prompts.num_forced
    assert all(prompts.junk not in text and text.max() < 999 for text in prompts.texts)
    assert len(probe_prompts(1000, (128, 256, 512, 1024, 2048)).lengths) == 8


def test_weights_are_the_recipe_s_on_every_machine() -> None:
    """The first entries of two tensors as this recipe made them once: another numpy or machine makes the same."""
    shape = dataclasses.replace(LLAMA, hidden=1024, vocab_size=2048)
    tree = probe_weights(shape, "fp32")
    assert tree["embedding"].size > BLOCK
    np.testing.assert_array_equal(
        tree["embedding"].ravel()[BLOCK : BLOCK + 9], tree["embedding"].ravel()[:9], "a repeat of the block"
    )
    np.testing.assert_array_equal(probe_rows(shape, "embedding", [3, 2047], "fp32"), tree["embedding"][[3, 2047]])
    assert float(np.std(tree["embedding"])) == pytest.approx(1 / 32, rel=0.01)
    assert float(np.mean(np.abs(tree["layers"][0]["wq"]) > 5 * np.std(tree["layers"][0]["wq"]))) > 0.003
    assert weights_bits([tree["layers"][1]["wo"]]) == WO_BITS
    assert weights_bits([tree["layers"][1]["wo"].T]) == WO_BITS


def test_rounding_to_a_dtype_is_torch_s() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    values = np.random.default_rng(0).standard_normal(10_000).astype(np.float32)
    for dtype, theirs in (("bf16", torch.bfloat16), ("fp16", torch.float16), ("fp32", torch.float32)):
        expected = torch.tensor(values).to(theirs).to(torch.float32).numpy()
        np.testing.assert_array_equal(rounded(values, dtype), expected)


def test_a_distance_is_of_what_logits_say_apart_from_their_common_part() -> None:
    assert distances([1.0, 3.0], [0.0, 4.0]) == pytest.approx(0.5)
    assert distances(np.array([[1.0, 3.0]]) + 7, [[1.0, 3.0]]) == pytest.approx([0.0])
    assert np.isnan(distances([1.0, 1.0], [2.0, 2.0]))
