"""On a CUDA device: its kernels against the CPU's, and the same properties. Skipped where there is none."""

from __future__ import annotations

import dataclasses
from random import Random
from time import perf_counter
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

from pytest_npubench.engines.torch_moe import TorchExecutor  # noqa: E402
from pytest_npubench.engines.torch_moe.attention import attention_kernel  # noqa: E402
from pytest_npubench.engines.torch_moe.flash_attention import FlashAttention  # noqa: E402
from pytest_npubench.engines.torch_moe.kv_cache import PagedKvCache  # noqa: E402
from pytest_npubench.engines.torch_moe.model import MoeModel  # noqa: E402
from pytest_npubench.engines.torch_moe.ragged import ragged_batch  # noqa: E402
from pytest_npubench.engines.torch_moe.weights import LayerWeights, ModelWeights, random_weights  # noqa: E402
from pytest_npubench.serving.iteration import IterationPlan, LayerGroup, LayerPass, PrefillRow  # noqa: E402

from .driving import drive, whole  # noqa: E402
from .small_shapes import GPT_OSS, QWEN_DENSE, QWEN_MOE, SHAPES  # noqa: E402

LENGTHS = {3: (1, 4), 8: (19, 5), 11: (33, 3)}
# sizes that its kernels take: multiples of 8 for the grouped product, heads of 64 for attention
WIDER = {"hidden": 64, "head_dim": 64, "intermediate": 32}


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_tokens_do_not_depend_on_the_plans(shape: Any) -> None:
    served = TorchExecutor(shape, device="cuda", kv_capacity_tokens=160, block_size_tokens=4)
    alone = {request: whole(served, request, *pair) for request, pair in LENGTHS.items()}
    for seed in range(4):
        assert drive(served, LENGTHS, Random(seed))[0] == alone


@pytest.mark.parametrize("block_size", [16, 256])
@pytest.mark.parametrize("shape", [QWEN_MOE, QWEN_DENSE, GPT_OSS], ids=lambda shape: shape.name)
def test_bf16_on_the_device_is_near_fp32_on_the_host(shape: Any, block_size: int) -> None:
    """All of a chunk beside decode rows, by flash attention and the grouped product. FlashAttention 2 reads pages of
    256 tokens in place and gathers those of 16."""
    shape = dataclasses.replace(shape, num_layers=2, **WIDER)
    host = random_weights(shape, seed=0, device=torch.device("cpu"), dtype=torch.float32)
    expected = _logits(shape, host, torch.device("cpu"), torch.float32)
    cuda = _logits(shape, _moved(host), torch.device("cuda"), torch.bfloat16, block_size).float().cpu()
    # the median token: one whose experts come out otherwise errs by any amount
    assert float(((cuda - expected).norm(dim=1) / expected.norm(dim=1)).median()) < 0.1


def test_the_hosts_part_of_an_iteration_ends_before_the_device_does() -> None:
    shape = dataclasses.replace(QWEN_DENSE, **WIDER)
    served = TorchExecutor(shape, device="cuda", dtype="bf16", kv_capacity_tokens=1024)
    served.begin(1, 500, 2)
    prompt = LayerPass(LayerGroup(0, shape.num_layers), (PrefillRow(1, 0, 500),))
    started_s = perf_counter()
    host_s = served.run(IterationPlan(passes=(prompt,), finishing=(1,))).host_s
    assert host_s is not None
    assert 0 < host_s < perf_counter() - started_s


def _logits(shape: Any, weights: Any, device: Any, dtype: Any, block_size: int = 16) -> Any:
    kv = PagedKvCache(shape, capacity_tokens=1024, block_size_tokens=block_size, device=device, dtype=dtype)
    kernel = attention_kernel(shape, kv)
    assert isinstance(kernel, FlashAttention) == (device.type == "cuda")
    model = MoeModel(shape, weights, kernel)
    ids = torch.randint(shape.vocab_size, (40,), generator=torch.Generator().manual_seed(3)).to(device)
    kv.reserve(1, 40)
    kv.reserve(2, 40)
    with torch.inference_mode():
        first = model.prepare(ragged_batch([], [], [PrefillRow(1, 0, 30), PrefillRow(2, 0, 12)], kv))
        model.run_layers(0, shape.num_layers, model.embed(torch.cat((ids[:30], ids[:12]))), first, kv)
        rows = [PrefillRow(1, 30, 1)], [], [PrefillRow(2, 12, 28)]
        hidden = model.embed(torch.cat((ids[30:31], ids[12:])))
        hidden, _ = model.run_layers(0, shape.num_layers, hidden, model.prepare(ragged_batch(*rows, kv)), kv)
        return model.logits(hidden)


def _moved(weights: ModelWeights) -> ModelWeights:
    def move(tensor: Any) -> Any:
        return None if tensor is None else tensor.to("cuda", torch.bfloat16)

    layers = tuple(
        LayerWeights(**{field.name: move(getattr(layer, field.name)) for field in dataclasses.fields(layer)})
        for layer in weights.layers
    )
    return ModelWeights(
        embedding=move(weights.embedding),
        layers=layers,
        final_norm=move(weights.final_norm),
        head=move(weights.head),
    )
