"""FAKE operators of the contract of aten's FlashAttention, in plain torch on the CPU. torch's own dispatcher calls them
under the signatures that aten's has in torch 2.11, 2.12 and 2.13."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

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
        assert cu_k is None or cu_k[-1] <= len(key), "a device would read behind the keys"
        outputs, sums = [], []
        for row in range(len(cu_q) - 1):
            q = query[cu_q[row] : cu_q[row + 1]].float()
            if block_table is None:
                k, v = key[cu_k[row] : cu_k[row + 1]], value[cu_k[row] : cu_k[row + 1]]
            else:
                assert cu_k is None
                pages = block_table[row].long()
                k, v = key[pages].flatten(0, 1)[: seqused_k[row]], value[pages].flatten(0, 1)[: seqused_k[row]]
            assert len(q) <= max_q
            assert len(k) <= max_k
            self.num_keys += len(k)
            k, v = k.float(), v.float()
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
        return torch.cat(outputs).to(query.dtype), torch.cat(sums, 1), nothing, nothing, nothing


@contextmanager
def operator(signature: str, kernel: Kernel) -> Iterator[Any]:
    """The kernel as an operator with one of SIGNATURES."""
    library = torch.library.Library(LIBRARY, "FRAGMENT")
    name = f"forward_{id(kernel)}"
    library.define(name + SIGNATURES[signature])
    library.impl(name, kernel, "CPU")
    yield getattr(getattr(torch.ops, LIBRARY), name).default
    library._destroy()
