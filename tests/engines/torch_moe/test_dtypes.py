"""bf16 and fp16 stay near fp32: the same weights, rounded."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from pytest_npubench.engines.torch_moe import TorchExecutor  # noqa: E402
from pytest_npubench.engines.torch_moe.attention import attention_kernel  # noqa: E402
from pytest_npubench.engines.torch_moe.kv_cache import PagedKvCache  # noqa: E402
from pytest_npubench.engines.torch_moe.model import MoeModel  # noqa: E402
from pytest_npubench.engines.torch_moe.ragged import ragged_batch  # noqa: E402
from pytest_npubench.engines.torch_moe.weights import LayerWeights, ModelWeights, random_weights  # noqa: E402
from pytest_npubench.serving.iteration import PrefillRow  # noqa: E402

from .driving import whole  # noqa: E402
from .small_shapes import GPT_OSS, QWEN_DENSE, SHAPES  # noqa: E402

HOST = torch.device("cpu")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_logits(shape: Any, dtype: str) -> None:
    """Half of the tokens and more err by under 4 %. One whose experts come out otherwise errs by any amount, and later
    layers spread that to whoever looks at it: so two layers."""
    shape = replace(shape, num_layers=2)
    weights = random_weights(shape, seed=0, device=HOST, dtype=torch.float32)
    exact = _logits(shape, weights, torch.float32)
    rounded = _logits(shape, _cast(weights, getattr(torch, dtype)), getattr(torch, dtype)).float()
    assert float(((rounded - exact).norm(dim=1) / exact.norm(dim=1)).median()) < 0.04


@pytest.mark.parametrize("shape", [QWEN_DENSE, GPT_OSS], ids=lambda shape: shape.name)
def test_an_executor_in_bf16(shape: Any) -> None:
    served = TorchExecutor(shape, dtype="bf16", kv_capacity_tokens=64)
    assert len(whole(served, 1, 19, 5)) == 5


def _logits(shape: Any, weights: ModelWeights, dtype: Any) -> Any:
    kv = PagedKvCache(shape, capacity_tokens=64, block_size_tokens=4, device=HOST, dtype=dtype)
    model = MoeModel(shape, weights, attention_kernel(shape, kv))
    kv.reserve(1, 40)
    ids = torch.randint(shape.vocab_size, (40,), generator=torch.Generator().manual_seed(3))
    with torch.inference_mode():
        inputs = model.prepare(ragged_batch([], [], [PrefillRow(1, 0, 40)], kv))
        return model.logits(model.run_layers(0, shape.num_layers, model.embed(ids), inputs, kv)[0])


def _cast(weights: ModelWeights, dtype: Any) -> ModelWeights:
    def cast(tensor: Any) -> Any:
        return None if tensor is None else tensor.to(dtype)

    layers = tuple(
        LayerWeights(**{field.name: cast(getattr(layer, field.name)) for field in fields(layer)})
        for layer in weights.layers
    )
    return ModelWeights(
        embedding=cast(weights.embedding),
        layers=layers,
        final_norm=cast(weights.final_norm),
        head=cast(weights.head),
    )
