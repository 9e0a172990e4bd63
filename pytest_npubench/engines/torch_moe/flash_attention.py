"""Attention by torch's varlen_attn (FlashAttention, arXiv 2205.14135), for bf16 and fp16 on CUDA.

One call for single-token rows, which has a way of its own for them, and one for prefill rows. FlashAttention 3, where
it was activated (torch.nn.attention.activate_flash_attention_impl), reads the paged cache in place; the built-in
FlashAttention 2 wants keys in a row, so that they are gathered first, which moves the context's bytes thrice.

A sink s joins the softmax after the fact: with the log-sum-exp of the logits, the output shrinks by
exp(lse) / (exp(lse) + exp(s)) = sigmoid(lse - s).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pytest_npubench.engines.torch_moe.kv_cache import PagedKvCache
from pytest_npubench.engines.torch_moe.ragged import RaggedBatch
from pytest_npubench.errors import DeviceUnavailableError

OLDEST_TORCH = (2, 12)  # varlen_attn with grouped heads, windows and block tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Tokens [start, stop) of the batch in rows: cu_q and cu_k [rows + 1] are where their queries and keys start.

    slots [sum of contexts] where keys are gathered; tables [rows, blocks] and lengths [rows] where they are not.
    """

    start: int
    stop: int
    max_q: int
    max_k: int
    cu_q: Tensor
    cu_k: Tensor
    slots: Tensor | None
    tables: Tensor | None
    lengths: Tensor


class FlashAttention:
    """prepare() once a pass, attend() once a layer."""

    def __init__(self) -> None:
        if tuple(map(int, torch.__version__.split(".")[:2])) < OLDEST_TORCH:
            raise DeviceUnavailableError(
                f"CUDA in bf16 or fp16 needs torch {OLDEST_TORCH[0]}.{OLDEST_TORCH[1]} or later for its varlen_attn; "
                f"this is {torch.__version__}"
            )
        # not imported on a CPU, where an older torch will do
        from torch.nn.attention import current_flash_attention_impl, varlen

        self._varlen: Any = varlen
        self._reads_pages = current_flash_attention_impl() == "FA3"

    def prepare(self, batch: RaggedBatch) -> tuple[Call, ...]:
        ends = (0, batch.num_single, len(batch.rows))
        return tuple(self._call(batch, first, stop) for first, stop in pairwise(ends) if stop > first)

    def _call(self, batch: RaggedBatch, first_row: int, stop_row: int) -> Call:
        rows = batch.rows[first_row:stop_row]
        counts = np.array([row.num_tokens for row in rows])
        lengths = counts + np.array([row.first_token for row in rows])
        start = sum(row.num_tokens for row in batch.rows[:first_row])
        tables = batch.tables[first_row:stop_row]

        def put(values: Any) -> Tensor:
            return torch.as_tensor(values.astype(np.int32), device=tables.device)

        cu_k = np.concatenate(([0], lengths.cumsum()))
        return Call(
            start=start,
            stop=start + int(counts.sum()),
            max_q=int(counts.max()),
            max_k=int(lengths.max()),
            cu_q=put(np.concatenate(([0], counts.cumsum()))),
            cu_k=put(cu_k),
            slots=None
            if self._reads_pages
            else _packed_slots(tables, put(cu_k), int(cu_k[-1]), batch.block_size_tokens),
            tables=tables.int() if self._reads_pages else None,
            lengths=put(lengths),
        )

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        calls: tuple[Call, ...],
        kv: PagedKvCache,
        layer: int,
        window: int | None,
        sinks: Tensor | None,
    ) -> Tensor:
        """query [T, H, D]; key and value [T, K, D] are in the cache already; returns [T, H, D]."""
        mixed = [self._attend(query, call, kv, layer, window, sinks) for call in calls]
        return mixed[0] if len(mixed) == 1 else torch.cat(mixed)

    def _attend(
        self, query: Tensor, call: Call, kv: PagedKvCache, layer: int, window: int | None, sinks: Tensor | None
    ) -> Tensor:
        keys, values = kv.keys[layer], kv.values[layer]
        if call.slots is not None:
            keys, values = keys.index_select(0, call.slots), values.index_select(0, call.slots)
        else:
            pages = (-1, kv.block_size_tokens, *keys.shape[1:])
            keys, values = keys.view(pages), values.view(pages)
        # a window of W tokens, oneself counted, reaches W - 1 to the left
        mixed, lse = self._varlen.varlen_attn(
            query[call.start : call.stop],
            keys,
            values,
            call.cu_q,
            call.cu_k if call.tables is None else None,
            call.max_q,
            call.max_k,
            return_aux=self._varlen.AuxRequest(lse=True),
            window_size=(-1 if window is None else window - 1, 0),
            enable_gqa=True,
            seqused_k=None if call.tables is None else call.lengths,
            block_table=call.tables,
        )
        if sinks is None:
            return mixed
        # lse is [H, T]
        return mixed * torch.sigmoid(lse.t() - sinks.float())[:, :, None].to(mixed.dtype)


def _packed_slots(tables: Tensor, cu_k: Tensor, num_keys: int, block_size: int) -> Tensor:
    """Slots [num_keys] of all positions of all rows, one row after another; never waits for the device."""
    rows = torch.arange(len(tables), device=tables.device)
    row = torch.repeat_interleave(rows, cu_k.diff(), output_size=num_keys)
    position = torch.arange(num_keys, device=tables.device) - cu_k[row]
    return tables[row, position // block_size] * block_size + position % block_size
