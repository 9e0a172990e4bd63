"""The engine in jax against torch_moe on the same weights, and against a decoder in float64 that has no cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="torch is not installed")
jax = pytest.importorskip("jax", reason="jax is not installed")

from engines.torch_moe.driving import drive, whole  # noqa: E402
from engines.torch_moe.small_shapes import GPT_OSS, QWEN_DENSE, QWEN_MOE  # noqa: E402
from pytest_npubench.backends.jax_runtime import JaxRuntime  # noqa: E402
from pytest_npubench.backends.protocol import Device  # noqa: E402
from pytest_npubench.engines.answer_reference import answer_reference  # noqa: E402
from pytest_npubench.engines.answers import distances, root_mean_square  # noqa: E402
from pytest_npubench.engines.jax_moe.batches import pieces  # noqa: E402
from pytest_npubench.engines.jax_moe.executor import JaxExecutor  # noqa: E402
from pytest_npubench.engines.jax_moe.plain_kernels import PlainKernels  # noqa: E402
from pytest_npubench.engines.jax_moe.probed import ProbedJaxExecutor  # noqa: E402
from pytest_npubench.engines.jax_moe.sizes import ServingSizes, Size  # noqa: E402
from pytest_npubench.engines.probe import Asked, probe_prompts  # noqa: E402
from pytest_npubench.engines.torch_moe import TorchExecutor  # noqa: E402
from pytest_npubench.engines.torch_moe.weights import random_weights  # noqa: E402
from pytest_npubench.errors import ConfigError, MeasurementError  # noqa: E402
from pytest_npubench.serving.iteration import IterationPlan, LayerGroup, LayerPass, PrefillRow  # noqa: E402

LENGTHS = {3: (1, 4), 8: (19, 5), 11: (33, 3), 12: (10, 6)}
SIZES = ServingSizes(kv_capacity_tokens=160, block_size_tokens=4, chunk_tokens=160, max_batch_size=8)


class FewSizes(ServingSizes):
    """Prompts of 33 tokens run in several pieces."""

    @property
    def passes(self) -> tuple[Size, ...]:
        return (Size(8, 16, 2),)


PIECES = FewSizes(kv_capacity_tokens=160, block_size_tokens=4, chunk_tokens=16, max_batch_size=8)


class OfTorch(JaxExecutor):
    """With the weights that torch_moe makes of the seed."""

    def _make_weights(self, seed: int) -> Any:
        made = random_weights(self.shape, seed=seed, device=torch.device("cpu"), dtype=torch.float32)
        layers, (heads, groups) = made.layers, (self.shape.num_heads, self.shape.num_kv_heads)
        rows = np.array([heads, groups, groups]) * self.shape.head_dim
        qkv = zip(*(torch.split(layer.qkv, rows.tolist()) for layer in layers), strict=True)
        gate_up = zip(*(layer.gate_up.chunk(2, 1) for layer in layers), strict=True)
        stacked: dict[str, Sequence[Any]] = dict(zip(("wq", "wk", "wv"), qkv, strict=True))
        stacked |= dict(zip(("w_gate", "w_up"), gate_up, strict=True))
        stacked |= {"wo": [layer.out for layer in layers], "w_down": [layer.down for layer in layers]}
        if not self.shape.is_dense:
            stacked["router"] = [layer.router for layer in layers]
        weights = {
            name: np.stack([np.swapaxes(one.numpy(), -1, -2) for one in every]) for name, every in stacked.items()
        }
        if self.shape.is_dense:
            weights |= {name: weights[name][:, 0] for name in ("w_gate", "w_up", "w_down")}
        vectors = ["attention_norm", "ffn_norm"] + ([] if self.shape.is_dense else ["router_bias"])
        weights |= {name: np.stack([getattr(layer, name) for layer in layers]) for name in vectors}
        weights |= {
            name: np.stack([layer.qk_norm[row] for layer in layers]) for name, row in (("q_norm", 0), ("k_norm", -1))
        }
        weights |= {"embedding": made.embedding.numpy(), "final_norm": made.final_norm.numpy()}
        if not self.shape.tied_embeddings:
            weights["head"] = made.head.numpy()
        assert {name: array.shape for name, array in weights.items()} == {
            name: array.shape for name, array in self._programs.weights.items()
        }
        return weights


def runtime(num_devices: int = 1) -> JaxRuntime:
    return JaxRuntime("cpu", [Device(family="cpu", ordinal=index, name="host") for index in range(num_devices)], None)


@cache
def engine(shape: Any, sizes: ServingSizes = SIZES) -> Any:
    return OfTorch(shape, runtime(), dtype="fp32", sizes=sizes, seed=2)


@cache
def in_torch(shape: Any) -> Any:
    return TorchExecutor(shape, kv_capacity_tokens=160, block_size_tokens=4, seed=2)


@cache
def alone(shape: Any) -> dict[int, list[int]]:
    return {request: whole(in_torch(shape), request, *pair) for request, pair in LENGTHS.items()}


@pytest.mark.parametrize("shape", [QWEN_MOE, QWEN_DENSE], ids=lambda shape: shape.name)
def test_tokens_counters_and_bytes_are_those_of_torch_whatever_the_plans(shape: Any) -> None:
    for seed in range(6):
        (tokens, ran), (expected, expected_ran) = (
            drive(one(shape), LENGTHS, Random(seed)) for one in (engine, in_torch)
        )
        assert tokens == expected == alone(shape)
        assert [item.outcome for item in ran] == [item.outcome for item in expected_ran]
    assert any(item.outcome.hidden_bytes for item in ran)


def test_long_passes_in_pieces_give_the_same_tokens_and_load_experts_more_often() -> None:
    loads = []
    for served in (engine(QWEN_MOE, PIECES), engine(QWEN_MOE)):
        tokens, ran = drive(served, LENGTHS, Random(3))
        assert tokens == alone(QWEN_MOE)
        loads.append(sum(item.outcome.expert_activations for item in ran))
    assert loads[0] > loads[1]


def test_padding_rows_cost_but_never_count() -> None:
    outcomes = []
    for served in (engine(QWEN_MOE), in_torch(QWEN_MOE)):
        whole(served, 8, 19, 3)
        served.begin(12, 10, 3)
        groups = [LayerGroup(0, 2), LayerGroup(2, QWEN_MOE.num_layers)]
        prompt = tuple(LayerPass(group, (PrefillRow(12, 0, 10),)) for group in groups)
        served.run(IterationPlan(passes=prompt, finishing=(12,)))
        plan = IterationPlan(decode=(12,), passes=tuple(map(LayerPass, groups)), num_padding_rows=6)
        outcomes.append([served.run(plan), served.run(plan)])
        served.end(12)
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][0].padded_expert_activations > outcomes[0][0].expert_activations


@cache
def probed(shape: Any, dtype: str) -> ProbedJaxExecutor:
    return ProbedJaxExecutor(shape, runtime(), dtype=dtype, sizes=replace(SIZES, kv_capacity_tokens=320))


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_answers_are_those_of_the_reference_whatever_the_plans_and_what_was_in_the_cache(dtype: str) -> None:
    prompts = replace(probe_prompts(QWEN_MOE.vocab_size, (16, 48)), middles=())
    asked, executor = prompts.asked(), probed(QWEN_MOE, dtype)
    reference = answer_reference(QWEN_MOE, dtype, prompts)
    answers = []
    for fills in (False, True):
        if fills:
            executor.fill_cache_with_junk()
        executor.ask(asked)
        drive(executor, {index: (len(p), len(f) + 1) for index, (p, f) in enumerate(asked)}, Random(int(fills)))
        answers.append(np.stack(executor.answers()))
        apart = root_mean_square(distances(answers[-1], reference.logits))
        assert reference.rounding / 10 < apart < (4 if dtype == "fp32" else 2) * reference.rounding
    if dtype == "fp32":
        assert distances(*answers).max() < 1e-5
    on_device, made = executor.weights_bits()
    assert on_device == made


def test_a_forced_token_is_gone_on_with() -> None:
    executor = probed(QWEN_MOE, "fp32")
    prompt, forced = np.arange(5, dtype=np.int32), np.array([7, 9], np.int32)
    executor.ask([Asked(prompt, forced)])
    assert whole(executor, 0, 5, 3)[:2] == [7, 9]


@settings(max_examples=50, deadline=None)
@given(counts=st.lists(st.integers(1, 40), max_size=6), num_decode=st.integers(0, 20), num_padding=st.integers(0, 5))
def test_pieces_hold_every_row_once_in_order(counts: list[int], num_decode: int, num_padding: int) -> None:
    decode = [PrefillRow(index, 9, 1) for index in range(num_decode)]
    padding = [PrefillRow(0, 9, 1)] * (num_padding if num_decode else 0)
    prefill = [PrefillRow(100 + index, 3, count) for index, count in enumerate(counts)]
    held = list(pieces(PIECES, decode, padding, prefill))
    assert [row for piece in held for row in piece.single] == decode + padding
    assert sum(piece.num_padding for piece in held) == len(padding)
    assert _tokens(row for piece in held for row in piece.prefill) == _tokens(prefill)
    for piece in held:
        assert len(piece.single) <= piece.size.num_single
        assert len(piece.prefill) <= piece.size.num_prompts
        assert sum(row.num_tokens for row in piece.prefill) <= piece.size.num_prefill


def _tokens(rows: Iterable[PrefillRow]) -> list[tuple[int, int]]:
    return [(request, first + index) for request, first, count in rows for index in range(count)]


@settings(max_examples=20, deadline=None)
@given(sizes=st.lists(st.integers(0, 30), min_size=4, max_size=4), first=st.integers(0, 3))
def test_a_grouped_product_is_each_group_s(sizes: list[int], first: int) -> None:
    random = np.random.default_rng(sum(sizes))
    rows, matrices = (random.standard_normal(dims, np.float32) for dims in ((120, 6), (7, 6, 5)))
    ends = np.cumsum(sizes)
    groups = zip(sizes, ends, matrices[first:], strict=False)
    expected = [rows[end - size : end] @ matrix for size, end, matrix in groups]
    product = _multiply(rows, matrices, np.array(sizes, np.int32), first)
    np.testing.assert_allclose(product[: ends[-1]], np.concatenate(expected), rtol=1e-5, atol=1e-5)


@cache
def _jitted() -> Any:
    return jax.jit(PlainKernels().multiply)


def _multiply(*arguments: Any) -> Any:
    return np.asarray(_jitted()(*arguments))


def test_what_it_does_not_serve_is_refused_before_anything_is_compiled() -> None:
    with pytest.raises(ConfigError, match="sinks"):
        JaxExecutor(GPT_OSS, runtime(), dtype="fp32", sizes=SIZES)
    with pytest.raises(MeasurementError, match="contexts of at most 160 tokens"):
        engine(QWEN_MOE).begin(1, 150, 20)


def test_four_devices_serve_what_one_does() -> None:
    """In a process of its own, since the number of host devices is fixed when jax starts."""
    four = f"--xla_force_host_platform_device_count=4 {os.environ.get('XLA_FLAGS', '')}"
    child = subprocess.run(
        [sys.executable, "-m", "engines.jax_moe.devices_child", "1", "4"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=Path(__file__).parents[2],
        env=os.environ | {"XLA_FLAGS": four, "JAX_PLATFORMS": "cpu"},
    )
    assert child.returncode == 0, child.stderr
    (tokens, loaded, whole_weights), (other_tokens, other_loaded, parts) = json.loads(child.stdout)
    assert tokens == other_tokens
    assert loaded == other_loaded
    assert parts["w_gate"][1] == whole_weights["w_gate"][1] // 4
    assert parts["wq"][-1] == whole_weights["wq"][-1] // 4
    assert parts["wk"][-1] == whole_weights["wk"][-1] // 2  # each device has one of the two heads
