"""What another engine makes of the same directory: torch_moe, one whole pass over all tokens so far."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_npubench.engines.shapes import DecoderShape

Experts = np.ndarray  # [layers, tokens, k]


@cache
def _executor(shape: DecoderShape, folder: Path) -> Any:
    pytest.importorskip("torch", reason="torch is not installed")
    from pytest_npubench.engines.torch_moe import TorchExecutor

    return TorchExecutor(shape, kv_capacity_tokens=512, weights=folder)


def _forward(shape: DecoderShape, folder: Path, tokens: list[int]) -> tuple[Any, Any]:
    """Logits of the last token, and the experts of every token; None in a dense model."""
    import torch

    from pytest_npubench.engines.torch_moe.ragged import ragged_batch
    from pytest_npubench.serving.iteration import PrefillRow

    executor = _executor(shape, folder)
    row = PrefillRow(1, 0, len(tokens))
    executor._kv.reserve(1, len(tokens))
    inputs = executor._model.prepare(ragged_batch([], [], (row,), executor._kv))
    hidden, experts = executor._model.run_layers(
        0, shape.num_layers, executor._model.embed(torch.tensor(tokens)), inputs, executor._kv
    )
    executor._kv.free(1)
    return executor._model.logits(hidden[-1:])[0], experts


def greedy(shape: DecoderShape, folder: Path, prompt: list[int], num_tokens: int) -> list[int]:
    """Slow, and no cache to be wrong."""
    tokens = list(prompt)
    for _ in range(num_tokens):
        tokens.append(int(_forward(shape, folder, tokens)[0].argmax()))
    return tokens[len(prompt) :]


def chosen_experts(shape: DecoderShape, folder: Path, tokens: list[int]) -> Experts:
    """[layers, tokens, k]"""
    chosen: Experts = _forward(shape, folder, tokens)[1].numpy()
    return chosen
