"""What is handed to the CUDA kernel, checked without one: FAKE operators of the same contract in plain torch, which
torch's own dispatcher calls under the signatures that aten's has in torch 2.11, 2.12 and 2.13.

On a device, test_cuda.py runs the real one; here it runs on meta tensors.
"""

from __future__ import annotations

from collections.abc import Iterator
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
# native_functions.yaml of pytorch: what torch 2.5 to 2.11 have, and what came with 2.12 and is in 2.13 unchanged
ARGUMENTS = (
    "(Tensor query, Tensor key, Tensor value, Tensor? cum_seq_q, Tensor? cum_seq_k, SymInt max_q, SymInt max_k, "
    "float dropout_p, bool is_causal, bool return_debug_mask, *, float? scale=None, SymInt? window_size_left=None, "
    "SymInt? window_size_right=None, Tensor? seqused_k=None, Tensor? alibi_slopes=None{}) -> (Tensor output, "
    "Tensor softmax_logsumexp, Tensor rng_state, Tensor unused, Tensor debug_attn_mask)"
)
SIGNATURES = {
    "torch-2.11": ARGUMENTS.format(""),
    "2.12-2.13": ARGUMENTS.format(", Tensor? block_table=None, int? num_splits=None"),
}
LIBRARY = "npubench_flash_attention_tests"


class Kernel:
    """The contract: rows' last queries align with their last keys; log-sum-exp as [H, T]. Counts the keys that it is
    given, and notes the windows of rows of one token."""

    def __init__(self, reads_pages: bool) -> None:
        self.reads_pages, self.num_keys, self.single_windows = reads_pages, 0, set()

    def __call__(
        self, query: Any, key: Any, value: Any, cu_q: Any, cu_k: Any, max_q: int, max_k: int, dropout_p: float,
        is_causal: bool, return_debug_mask: bool, scale: Any = None, window_size_left: int = -1,
        window_size_right: int = -1, seqused_k: Any = None, alibi_slopes: Any = None, block_table: Any = None,
        num_splits: Any = None,
    ) -> Any:  # fmt: skip
        assert (dropout_p, return_debug_mask, is_causal) == (0, False, (window_size_left, window_size_right) == (-1, 0))
        if block_table is not None and not self.reads_pages:
            raise RuntimeError("paged KV cache block size must be divisible by 256")
        if max_q == 1:
            self.single_windows.add((window_size_left, window_size_right))
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
            self.num_keys += len(k)
            group = q.shape[1] // k.shape[1]
            k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
            scores = torch.einsum("qhd,khd->hqk", q, k) / q.shape[2] ** 0.5
            distance = torch.arange(len(k) - len(q), len(k))[:, None] - torch.arange(len(k))
            hidden = torch.zeros_like(distance, dtype=torch.bool)
            if window_size_right >= 0:
                hidden |= distance < -window_size_right
            if window_size_left >= 0:
                hidden |= distance > window_size_left
            scores = scores.masked_fill(hidden, float("-inf"))
            outputs.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), v))
            sums.append(scores.logsumexp(-1))
        nothing = query.new_empty(0)
        return torch.cat(outputs), torch.cat(sums, 1), nothing, nothing, nothing


@pytest.fixture(
    params=[("torch-2.11", False), ("2.12-2.13", False), ("2.12-2.13", True)], ids=["211", "213", "213-pages"]
)
def fake(request: pytest.FixtureRequest) -> Iterator[tuple[Kernel, Any]]:
    signature, reads_pages = request.param
    library = torch.library.Library(LIBRARY, "FRAGMENT")
    name, kernel = f"forward_{request.param_index}", Kernel(reads_pages)
    library.define(name + SIGNATURES[signature])
    library.impl(name, kernel, "CPU")
    yield kernel, getattr(getattr(torch.ops, LIBRARY), name).default
    library._destroy()


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


@pytest.mark.parametrize("reads_pages", [False, True], ids=["gathered", "pages"])
def test_the_operator_of_the_torch_that_is_here(reads_pages: bool) -> None:
    """On meta tensors, which check a call's signature and tell its shapes."""
    names = {argument.name for argument in torch.ops.aten._flash_attention_forward.default._schema.arguments}
    if reads_pages and "block_table" not in names:
        pytest.skip("this torch's operator takes no pages")
    kv, batch = batch_of(GPT_OSS, 2, torch.device("meta"))
    flash = FlashAttention(GPT_OSS, kv)
    assert not flash._reads_pages  # nothing can be tried
    flash._reads_pages = reads_pages
    num_tokens = len(batch.positions)
    query = torch.empty(num_tokens, GPT_OSS.num_heads, GPT_OSS.head_dim, device="meta")
    key = torch.empty(num_tokens, GPT_OSS.num_kv_heads, GPT_OSS.head_dim, device="meta")
    sinks = torch.empty(GPT_OSS.num_heads, device="meta")
    for window, calls in flash.prepare(batch).items():
        assert [call.window[1] for call in calls] == [0 if reads_pages and window else -1, 0]
        assert flash.attend(query, key, key, {window: calls}, kv, 0, window, sinks).shape == query.shape
