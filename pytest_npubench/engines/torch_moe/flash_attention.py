"""Attention by aten's FlashAttention (arXiv 2205.14135), for bf16 and fp16 on CUDA.

The operator is called as its own schema and a trial on the device allow, whatever the version of torch: torch 2.11 has
no `block_table`, 2.12 and 2.13 have it (native_functions.yaml, `_flash_attention_forward`), and which kernel is behind
it reads pages of which size is that kernel's own affair. Where pages are read, the cache is read in place; elsewhere
keys and values are gathered first, and of a layer with a window only those inside it.

One call serves single-token rows, another one prefill rows. A row of one token is given no mask at all, since it looks
back on all keys that it is given: only then does FlashAttention 2 read a K/V head once for all query heads of its
group, and split the keys of a small batch over the processors (flash_api.cpp, seqlenq_ngroups_swapped).

A sink s joins the softmax after the fact: with the log-sum-exp of the logits, the output shrinks by
exp(lse) / (exp(lse) + exp(s)) = sigmoid(lse - s).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.engines.torch_moe.kv_cache import PagedKvCache
from pytest_npubench.engines.torch_moe.ragged import RaggedBatch

NO_WINDOW = (-1, -1)
TRIAL_TOLERANCE = 0.05  # of outputs around 1 in bf16, whose digits are 0.008 apart there


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Tokens [start, stop) of the batch in rows: cu_q [rows + 1] is where their queries start.

    Keys are gathered from slots [sum of keys], where each row's start at cu_k [rows + 1]; or they are read in place, by
    block tables [rows, blocks] whose first `lengths` [rows] tokens count. `window` is how far a query sees to the left
    and to the right of the key that stands beside it, -1 for without limit.
    """

    start: int
    stop: int
    max_q: int
    max_k: int
    window: tuple[int, int]
    cu_q: Tensor
    cu_k: Tensor | None
    slots: Tensor | None
    tables: Tensor | None
    lengths: Tensor | None


Calls = Mapping[int | None, tuple[Call, ...]]


class FlashAttention:
    """prepare() once a pass, attend() once a layer."""

    def __init__(self, shape: DecoderShape, kv: PagedKvCache, forward: Any = None) -> None:
        """`forward` has the contract of aten's operator, which is the default."""
        self._windows = {None, shape.sliding_window}
        self._forward = torch.ops.aten._flash_attention_forward.default if forward is None else forward
        self.reads_pages = self._tried_pages(shape, kv)

    def prepare(self, batch: RaggedBatch) -> Calls:
        """Returns the calls for each kind of layer, by its window."""
        ends = (0, batch.num_single, len(batch.rows))
        return {
            window: tuple(self._call(batch, first, stop, window) for first, stop in pairwise(ends) if stop > first)
            for window in self._windows
        }

    def prepare_static(self, batch: RaggedBatch, num_keys: int) -> Calls:
        starts = torch.arange(batch.num_single + 1, dtype=torch.int32, device=batch.tables.device)
        return {window: (self._static_call(batch, starts, num_keys, window),) for window in self._windows}

    def _static_call(self, batch: RaggedBatch, starts: Tensor, num_keys: int, window: int | None) -> Call:
        """Makes the call of a static batch. Where keys are gathered, the last row's gathering goes on to num_keys,
        behind what it looks back on."""
        size, tables, lengths = batch.num_single, batch.tables, batch.firsts + 1
        longest = min(num_keys, tables.shape[1] * batch.block_size_tokens)
        call = Call(
            start=0,
            stop=size,
            max_q=1,
            max_k=longest,
            window=NO_WINDOW if window is None or not self.reads_pages else (window - 1, 0),
            cu_q=starts,
            cu_k=None,
            slots=None,
            tables=tables,
            lengths=lengths,
        )
        if self.reads_pages:
            return call
        if window is not None:
            num_keys = min(num_keys, size * window)
        seen = lengths if window is None else lengths.clamp(max=window)
        cu_k = F.pad(seen.cumsum(0, dtype=torch.int32), (1, 0))
        filled = torch.cat((cu_k[:-1], cu_k.new_full((1,), num_keys)))
        slots = _packed_slots(tables, filled, lengths - seen, num_keys, batch.block_size_tokens)
        return replace(call, cu_k=cu_k, slots=slots, tables=None, lengths=None)

    def _call(self, batch: RaggedBatch, first_row: int, stop_row: int, window: int | None) -> Call:
        rows = batch.rows[first_row:stop_row]
        counts = np.array([row.num_tokens for row in rows])
        firsts = np.array([row.first_token for row in rows])
        gathers = not self.reads_pages
        # the first position that a row's first token sees, where what is before it need not be there
        lows = (firsts - window + 1).clip(0) if gathers and window is not None else np.zeros_like(firsts)
        lengths = firsts + counts - lows
        start = sum(row.num_tokens for row in batch.rows[:first_row])
        tables = batch.tables[first_row:stop_row]
        max_q, num_keys = int(counts.max()), int(lengths.sum())
        sees_all = max_q == 1 and (gathers or window is None)
        numbers = np.concatenate(([0], counts.cumsum(), [0], lengths.cumsum(), lows, lengths)).astype(np.int32)
        # one transfer, since each waits for the device
        cu_q, cu_k, low, length = torch.as_tensor(numbers, device=tables.device).split(
            [len(rows) + 1, len(rows) + 1, len(rows), len(rows)]
        )
        return Call(
            start=start,
            stop=start + int(counts.sum()),
            max_q=max_q,
            max_k=int(lengths.max()),
            # a window of W tokens, oneself counted, reaches W - 1 to the left
            window=NO_WINDOW if sees_all else (-1 if window is None else window - 1, 0),
            cu_q=cu_q,
            cu_k=cu_k if gathers else None,
            slots=_packed_slots(tables, cu_k, low, num_keys, batch.block_size_tokens) if gathers else None,
            tables=None if gathers else tables.int(),
            lengths=None if gathers else length,
        )

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        calls: Calls,
        kv: PagedKvCache,
        layer: int,
        window: int | None,
        sinks: Tensor | None,
    ) -> Tensor:
        """query [T, H, D]; key and value [T, K, D] are in the cache already; returns [T, H, D]."""
        keys, values = kv.keys[layer], kv.values[layer]
        mixed = [
            self._attend(query[call.start : call.stop], keys, values, call, kv.block_size_tokens, sinks)
            for call in calls[window]
        ]
        return mixed[0] if len(mixed) == 1 else torch.cat(mixed)

    def _attend(
        self, query: Tensor, keys: Tensor, values: Tensor, call: Call, block_size: int, sinks: Tensor | None
    ) -> Tensor:
        paged: dict[str, Tensor] = {}
        if call.slots is not None:
            keys, values = keys.index_select(0, call.slots), values.index_select(0, call.slots)
        else:
            pages = (-1, block_size, *keys.shape[1:])
            keys, values = keys.view(pages), values.view(pages)
            assert call.tables is not None
            assert call.lengths is not None
            paged = {"seqused_k": call.lengths, "block_table": call.tables}
        (left, right), no_dropout, is_causal, debugs = call.window, 0.0, call.window == (-1, 0), False
        mixed, lse, *_ = self._forward(
            query,
            keys,
            values,
            call.cu_q,
            call.cu_k,
            call.max_q,
            call.max_k,
            no_dropout,
            is_causal,
            debugs,
            window_size_left=left,
            window_size_right=right,
            **paged,
        )
        if sinks is None:
            return mixed
        # lse is [H, T]
        return mixed * torch.sigmoid(lse.t() - sinks.float())[:, :, None].to(mixed.dtype)

    def _tried_pages(self, shape: DecoderShape, kv: PagedKvCache) -> bool:
        """Whether the kernel reads this cache's pages in place: one token looks back on a page and a bit of another.

        A kernel that cannot refuses by a RuntimeError; one that took the pages and answered otherwise would be wrong.
        """
        if "block_table" not in {argument.name for argument in self._forward._schema.arguments} or kv.keys.is_meta:
            return False
        num_pages, size = 3, kv.block_size_tokens
        device, dtype, dims = kv.keys.device, kv.keys.dtype, (num_pages * size, shape.num_kv_heads, shape.head_dim)
        generator = torch.Generator(device).manual_seed(0)
        keys, values = (torch.empty(dims, device=device, dtype=dtype).normal_(generator=generator) for _ in range(2))
        query = torch.ones((1, shape.num_heads, shape.head_dim), device=device, dtype=dtype)

        def put(*values: int) -> Tensor:
            return torch.tensor(values, dtype=torch.int32, device=device)

        length, common = size + 1, {"start": 0, "stop": 1, "max_q": 1, "window": NO_WINDOW, "cu_q": put(0, 1)}
        gathered = Call(
            **common,
            max_k=length,
            cu_k=put(0, length),
            slots=torch.tensor([*range(2 * size, 3 * size), size], device=device),
            tables=None,
            lengths=None,
        )
        paged = Call(**common, max_k=length, cu_k=None, slots=None, tables=put(2, 1)[None], lengths=put(length))
        expected = self._attend(query, keys, values, gathered, size, None)
        try:
            mixed = self._attend(query, keys, values, paged, size, None)
        except RuntimeError:
            return False
        return bool((mixed - expected).abs().max() < TRIAL_TOLERANCE)


def _packed_slots(tables: Tensor, cu_k: Tensor, lows: Tensor, num_keys: int, block_size: int) -> Tensor:
    """Slots [num_keys] of positions from lows [rows] on, one row after another; never waits for the device. Positions
    behind a table's end are in its last block."""
    rows = torch.arange(len(tables), device=tables.device)
    row = torch.repeat_interleave(rows, cu_k.diff(), output_size=num_keys)
    position = torch.arange(num_keys, device=tables.device) - cu_k[row] + lows[row]
    block = (position // block_size).clamp(max=tables.shape[1] - 1)
    return tables[row, block] * block_size + position % block_size
