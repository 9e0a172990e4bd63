"""What is handed to the CUDA kernel, checked without one: FAKE operators of the same contract in plain torch, which
torch's own dispatcher calls under the signatures that aten's has in torch 2.11, 2.12 and 2.13.

On a device, test_cuda.py runs the real one; here it runs on meta tensors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from fake_flash_attention import Kernel, operator  # noqa: E402

from pytest_npubench.engines.torch_moe.flash_attention import FlashAttention  # noqa: E402
from pytest_npubench.engines.torch_moe.kv_cache import PagedKvCache  # noqa: E402
from pytest_npubench.engines.torch_moe.ragged import ragged_batch  # noqa: E402
from pytest_npubench.engines.torch_moe.sdpa_attention import SdpaAttention  # noqa: E402
from pytest_npubench.serving.iteration import PrefillRow  # noqa: E402

from .small_shapes import GPT_OSS, QWEN_MOE  # noqa: E402

HOST = torch.device("cpu")


@pytest.fixture(
    params=[("torch-2.11", False), ("2.12-2.13", False), ("2.12-2.13", True)], ids=["211", "213", "213-pages"]
)
def fake(request: pytest.FixtureRequest) -> Iterator[tuple[Kernel, Any]]:
    signature, reads_pages = request.param
    kernel = Kernel(reads_pages)
    with operator(signature, kernel) as forward:
        yield kernel, forward


def batch_of(shape: Any, num_decode: int, device: Any = HOST) -> tuple[Any, Any]:
    kv = PagedKvCache(shape, capacity_tokens=96, block_size_tokens=4, device=device, dtype=torch.float32)
    decode = [PrefillRow(1, 22, 1), PrefillRow(2, 3, 1)][:num_decode]
    prefill = [PrefillRow(3, 0, 11), PrefillRow(4, 13, 9), PrefillRow(5, 2, 1)]
    for request, num_tokens in ((1, 23), (2, 4), (3, 11), (4, 22), (5, 3)):
        kv.reserve(request, num_tokens)
    return kv, ragged_batch(decode, decode[:1], prefill, kv)


@pytest.mark.parametrize("shape", [QWEN_MOE, GPT_OSS], ids=lambda shape: shape.name)
@pytest.mark.parametrize("num_decode", [0, 2])
def test_same_as_torchs_own_attention(shape: Any, num_decode: int, fake: tuple[Kernel, Any]) -> None:
    kernel, forward = fake
    kv, batch = batch_of(shape, num_decode)
    generator = torch.Generator().manual_seed(0)
    for cached in (kv.keys, kv.values):
        cached.normal_(generator=generator)
    num_tokens = len(batch.positions)
    query = torch.randn(num_tokens, shape.num_heads, shape.head_dim, generator=generator)
    key, value = torch.randn(2, num_tokens, shape.num_kv_heads, shape.head_dim, generator=generator)
    kv.keys[0].index_copy_(0, batch.slots, key)
    kv.values[0].index_copy_(0, batch.slots, value)
    sinks = torch.randn(shape.num_heads, generator=generator) if shape is GPT_OSS else None

    flash, sdpa = FlashAttention(shape, kv, forward), SdpaAttention(shape)
    calls = flash.prepare(batch)
    for window in {None, shape.sliding_window}:
        kernel.num_keys, kernel.single_windows = 0, set()
        ours = flash.attend(query, key, value, calls, kv, 0, window, sinks)
        theirs = sdpa.attend(query, key, value, sdpa.prepare(batch), kv, 0, window, sinks)
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
        gathered_window = None if kernel.reads_pages else window
        contexts = [row.first_token + row.num_tokens for row in batch.rows]
        reaches = [row.num_tokens + (gathered_window or 1_000) - 1 for row in batch.rows]
        assert kernel.num_keys == sum(map(min, contexts, reaches))
        masked = kernel.reads_pages and window is not None
        assert kernel.single_windows == ({(window - 1, 0) if masked else (-1, -1)} if num_decode else set())


def test_a_kernel_that_answers_otherwise_from_pages_is_given_gathered_keys() -> None:
    class Otherwise(Kernel):
        def __call__(self, *given: Any, block_table: Any = None, **named: Any) -> Any:
            mixed, *others = super().__call__(*given, block_table=block_table, **named)
            return mixed + (block_table is not None), *others

    kv, _ = batch_of(QWEN_MOE, 0)
    with operator("2.12-2.13", Otherwise(True)) as forward:
        assert not FlashAttention(QWEN_MOE, kv, forward).reads_pages


@pytest.mark.parametrize("reads_pages", [False, True], ids=["gathered", "pages"])
def test_the_operator_of_the_torch_that_is_here(reads_pages: bool) -> None:
    """On meta tensors, which check a call's signature and tell its shapes."""
    names = {argument.name for argument in torch.ops.aten._flash_attention_forward.default._schema.arguments}
    if reads_pages and "block_table" not in names:
        pytest.skip("this torch's operator takes no pages")
    kv, batch = batch_of(GPT_OSS, 2, torch.device("meta"))
    flash = FlashAttention(GPT_OSS, kv)
    assert not flash.reads_pages  # nothing can be tried
    flash.reads_pages = reads_pages
    num_tokens = len(batch.positions)
    query = torch.empty(num_tokens, GPT_OSS.num_heads, GPT_OSS.head_dim, device="meta")
    key = torch.empty(num_tokens, GPT_OSS.num_kv_heads, GPT_OSS.head_dim, device="meta")
    sinks = torch.empty(GPT_OSS.num_heads, device="meta")
    for window, calls in flash.prepare(batch).items():
        assert [call.window[1] for call in calls] == [0 if reads_pages and window else -1, 0]
        assert flash.attend(query, key, key, {window: calls}, kv, 0, window, sinks).shape == query.shape
    # a decode batch whose numbers may change: the same operator, one row a token
    numbers = torch.empty(num_tokens, dtype=torch.int32, device="meta")
    tables = torch.empty((num_tokens, kv.num_blocks), dtype=torch.int32, device="meta")
    static = replace(batch, rows=(), num_single=num_tokens, num_padding=0, tables=tables, firsts=numbers)
    for window, calls in flash.prepare_static(static, 1_000).items():
        assert [call.window for call in calls] == [(window - 1, 0) if reads_pages and window else (-1, -1)]
        num_gathered = [None if reads_pages else min(1_000, num_tokens * (window or 1_000))]
        assert [None if call.slots is None else len(call.slots) for call in calls] == num_gathered
        assert flash.attend(query, key, key, {window: calls}, kv, 0, window, sinks).shape == query.shape
