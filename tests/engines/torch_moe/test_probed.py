"""The engine on probe weights: its answers are those of the float64 decoder, whatever the plans."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from pytest_npubench.engines.answer_reference import answer_reference  # noqa: E402
from pytest_npubench.engines.answers import distances, root_mean_square  # noqa: E402
from pytest_npubench.engines.probe import Asked, probe_prompts  # noqa: E402
from pytest_npubench.engines.torch_moe.probed import ProbedExecutor  # noqa: E402

from .driving import drive, whole  # noqa: E402
from .small_shapes import GPT_OSS, QWEN_DENSE, QWEN_MOE  # noqa: E402


def probed(shape: Any, dtype: str = "fp32") -> ProbedExecutor:
    return ProbedExecutor(shape, device="cpu", dtype=dtype, kv_capacity_tokens=320, block_size_tokens=4)


def answered_alone(executor: ProbedExecutor, asked: list[Asked]) -> Any:
    executor.ask(asked)
    for request, (prompt, forced) in enumerate(asked):
        tokens = whole(executor, request, len(prompt), len(forced) + 1)
        assert tokens[:-1] == forced.tolist()
    return np.stack(executor.answers())


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("shape", [QWEN_MOE, QWEN_DENSE, GPT_OSS], ids=lambda shape: shape.name)
def test_answers_are_those_of_the_reference(shape: Any, dtype: str) -> None:
    prompts = replace(probe_prompts(shape.vocab_size, (16, 48)), middles=())
    asked = [Asked(prompts.prompt(index), prompts.forced(index)) for index in range(len(prompts.lengths))]
    reference = answer_reference(shape, dtype, prompts)
    found = root_mean_square(distances(answered_alone(probed(shape, dtype), asked), reference.logits))
    assert reference.rounding / 10 < found < (4 if dtype == "fp32" else 2) * reference.rounding


@pytest.mark.parametrize("shape", [QWEN_MOE, QWEN_DENSE, GPT_OSS], ids=lambda shape: shape.name)
def test_answers_do_not_depend_on_the_plans_nor_on_what_was_in_the_cache(shape: Any) -> None:
    prompts = replace(probe_prompts(shape.vocab_size, (16, 48)), middles=())
    asked = [Asked(prompts.prompt(index), prompts.forced(index)) for index in range(len(prompts.lengths))]
    executor = probed(shape)
    alone = answered_alone(executor, asked)
    executor.fill_cache_with_junk()
    executor.ask(asked)
    _, ran = drive(executor, {index: (len(p), len(f) + 1) for index, (p, f) in enumerate(asked)}, Random(1))
    assert any(item.plan.dropped for item in ran)
    assert distances(np.stack(executor.answers()), alone).max() < 1e-5
    other = probed(shape)
    assert distances(answered_alone(other, asked[:1]), alone[0]).max() == 0
    assert other.weights_bits() == executor.weights_bits()
