"""What is handed to the CUDA kernel, checked without one: a kernel of the same contract in plain torch takes its place.

On a device, test_cuda.py runs the real one.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from pytest_npubench.engines.torch_moe.flash_attention import FlashAttention  # noqa: E402
from pytest_npubench.engines.torch_moe.kv_cache import PagedKvCache  # noqa: E402
from pytest_npubench.engines.torch_moe.ragged import ragged_batch  # noqa: E402
from pytest_npubench.engines.torch_moe.sdpa_attention import SdpaAttention  # noqa: E402
from pytest_npubench.serving.iteration import PrefillRow  # noqa: E402

from .small_shapes import GPT_OSS, QWEN_MOE  # noqa: E402

HOST = torch.device("cpu")


@pytest.fixture(scope="module", autouse=True)
def has_varlen() -> None:
    """Not asked for when the file is collected: it takes two seconds, of each worker."""
    pytest.importorskip("torch.nn.attention.varlen", reason="this torch has no varlen_attn")


def varlen_attn(
    query: Any,
    key: Any,
    value: Any,
    cu_q: Any,
    cu_k: Any,
    max_q: int,
    max_k: int,
    *,
    return_aux: Any,
    window_size: tuple[int, int],
    enable_gqa: bool,
    seqused_k: Any,
    block_table: Any,
) -> Any:
    """varlen_attn's contract: rows' last queries align with their last keys; log-sum-exp as [H, T]."""
    assert return_aux.lse
    assert enable_gqa
    assert window_size[1] == 0
    outputs, sums = [], []
    for row in range(len(cu_q) - 1):
        q = query[cu_q[row] : cu_q[row + 1]]
        if block_table is None:
            k, v = key[cu_k[row] : cu_k[row + 1]], value[cu_k[row] : cu_k[row + 1]]
        else:
            assert cu_k is None
            pages = block_table[row].long()
            k, v = key[pages].flatten(0, 1)[: seqused_k[row]], value[pages].flatten(0, 1)[: seqused_k[row]]
        assert len(q) <= max_q
        assert len(k) <= max_k
        group = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        scores = torch.einsum("qhd,khd->hqk", q, k) / q.shape[2] ** 0.5
        distance = torch.arange(len(k) - len(q), len(k))[:, None] - torch.arange(len(k))
        reach = len(k) if window_size[0] == -1 else window_size[0]
        scores = scores.masked_fill((distance < 0) | (distance > reach), float("-inf"))
        outputs.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), v))
        sums.append(scores.logsumexp(-1))
    return torch.cat(outputs), torch.cat(sums, 1)


@pytest.mark.parametrize("reads_pages", [False, True], ids=["gathered", "pages"])
@pytest.mark.parametrize("shape", [QWEN_MOE, GPT_OSS], ids=lambda shape: shape.name)
@pytest.mark.parametrize("num_decode", [0, 2])
def test_same_as_torchs_own_attention(shape: Any, reads_pages: bool, num_decode: int) -> None:
    kv = PagedKvCache(shape, capacity_tokens=96, block_size_tokens=4, device=HOST, dtype=torch.float32)
    decode = [PrefillRow(1, 22, 1), PrefillRow(2, 3, 1)][:num_decode]
    prefill = [PrefillRow(3, 0, 11), PrefillRow(4, 13, 9), PrefillRow(5, 2, 1)]
    for request, num_tokens in ((1, 23), (2, 4), (3, 11), (4, 22), (5, 3)):
        kv.reserve(request, num_tokens)
    generator = torch.Generator().manual_seed(0)
    for cached in (kv.keys, kv.values):
        cached.normal_(generator=generator)
    batch = ragged_batch(decode, decode[:1], prefill, kv)
    num_tokens = len(batch.positions)
    query = torch.randn(num_tokens, shape.num_heads, shape.head_dim, generator=generator)
    key, value = torch.randn(2, num_tokens, shape.num_kv_heads, shape.head_dim, generator=generator)
    kv.keys[0].index_copy_(0, batch.slots, key)
    kv.values[0].index_copy_(0, batch.slots, value)
    sinks = torch.randn(shape.num_heads, generator=generator) if shape is GPT_OSS else None

    flash, sdpa = FlashAttention(), SdpaAttention(shape)
    flash._varlen = SimpleNamespace(varlen_attn=varlen_attn, AuxRequest=SimpleNamespace)
    flash._reads_pages = reads_pages
    for window in {None, shape.sliding_window}:
        ours = flash.attend(query, key, value, flash.prepare(batch), kv, 0, window, sinks)
        theirs = sdpa.attend(query, key, value, sdpa.prepare(batch), kv, 0, window, sinks)
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
