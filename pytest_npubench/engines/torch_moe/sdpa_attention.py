"""Attention by torch's scaled_dot_product_attention: on a CPU, and in fp32 anywhere.

Single-token rows go together, their keys gathered to the longest context and masked; every prefill row goes by itself.
A sink (gpt-oss) is one more key of zeros whose logit is the sink alone and whose value is nothing.

Shapes: B rows of Q tokens each, S keys, H query heads, K key-value heads, D head_dim, G = H / K.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.engines.torch_moe.kv_cache import PagedKvCache
from pytest_npubench.engines.torch_moe.ragged import RaggedBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Tokens [start, stop) of the batch as B rows of Q.

    slots [B, S] of their keys, None where the rows have no keys but their own; mask [B, 1, Q, S] is added to
    the logits: nothing where a token may look, minus infinity elsewhere; None where each row looks back on itself.
    """

    start: int
    stop: int
    num_rows: int
    slots: Tensor | None
    mask: Tensor | None


Spans = dict[int | None, tuple[Span, ...]]


class SdpaAttention:
    """prepare() once a pass, attend() once a layer."""

    reads_pages = False

    def __init__(self, shape: DecoderShape, dtype: torch.dtype = torch.float32) -> None:
        self._shape, self._dtype = shape, dtype
        # a sink is written into the mask
        self._masks_always = shape.architecture == "gpt-oss"

    def prepare(self, batch: RaggedBatch) -> Spans:
        """Spans for each kind of layer, by its window."""
        return {window: self._spans(batch, window) for window in {None, self._shape.sliding_window}}

    def prepare_static(self, batch: RaggedBatch, num_keys: int) -> Spans | None:
        """Returns None: keys are gathered to the longest context, which is a number."""
        return None

    def _spans(self, batch: RaggedBatch, window: int | None) -> tuple[Span, ...]:
        spans = [] if not batch.num_single else [self._span(batch, 0, batch.num_single, 0, window)]
        start = batch.num_single
        for index, row in enumerate(batch.prefill, start=batch.num_single):
            spans.append(self._span(batch, index, index + 1, start, window))
            start += row.num_tokens
        return tuple(spans)

    def _span(self, batch: RaggedBatch, first_row: int, stop_row: int, start: int, window: int | None) -> Span:
        """One of rows [first_row, stop_row), all of as many tokens, the first of them token `start` of the batch."""
        rows = batch.rows[first_row:stop_row]
        num_tokens, num_rows = rows[0].num_tokens, len(rows)
        stop = start + num_rows * num_tokens
        alone = num_rows == 1 and rows[0].first_token == 0 and not self._masks_always
        if alone and (window is None or num_tokens <= window):
            return Span(start=start, stop=stop, num_rows=1, slots=None, mask=None)
        firsts = batch.firsts[first_row:stop_row, None]
        lows = torch.zeros_like(firsts) if window is None else (firsts - window + 1).clamp(min=0)
        num_keys = max(row.first_token + num_tokens - _low(row.first_token, window) for row in rows)
        looked_at = lows + torch.arange(num_keys, device=firsts.device)
        looking = firsts + torch.arange(num_tokens, device=firsts.device)
        slots = _slots(batch.tables[first_row:stop_row], looked_at, batch.block_size_tokens)
        # of the queries' dtype, once a pass: torch would make it of a boolean one in every layer
        mask = torch.zeros((), dtype=self._dtype, device=firsts.device).where(
            _may_look(looking, looked_at, window), float("-inf")
        )
        return Span(start=start, stop=stop, num_rows=num_rows, slots=slots, mask=mask)

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        spans: Spans,
        kv: PagedKvCache,
        layer: int,
        window: int | None,
        sinks: Tensor | None,
    ) -> Tensor:
        """query [T, H, D] on the pass's own key and value [T, K, D], which are in the cache too; returns [T, H, D]."""
        mixed = [
            _attend(query[span.start : span.stop], *_looked_at(span, key, value, kv, layer), span.mask, sinks)
            for span in spans[window]
        ]
        return mixed[0] if len(mixed) == 1 else torch.cat(mixed)


def _low(first_token: int, window: int | None) -> int:
    return 0 if window is None else max(0, first_token - window + 1)


def _slots(tables: Tensor, positions: Tensor, block_size: int) -> Tensor:
    """Slots [B, S] of positions [B, S]; those behind a row's end are some slot or other, the mask hides them."""
    blocks = tables.gather(1, (positions // block_size).clamp(max=tables.shape[1] - 1))
    return blocks * block_size + positions % block_size


def _may_look(looking: Tensor, looked_at: Tensor, window: int | None) -> Tensor:
    """Positions looking [B, Q] at positions [B, S]: not ahead, and inside the window, oneself counted. [B, 1, Q, S]."""
    distance = looking[:, None, :, None] - looked_at[:, None, None, :]
    return distance >= 0 if window is None else (distance >= 0) & (distance < window)


def _looked_at(span: Span, key: Tensor, value: Tensor, kv: PagedKvCache, layer: int) -> tuple[Tensor, Tensor]:
    """Keys and values [B, K, S, D]."""
    if span.slots is None:
        fresh = key[span.start : span.stop], value[span.start : span.stop]
        return fresh[0].transpose(0, 1)[None], fresh[1].transpose(0, 1)[None]
    flat, dims = span.slots.flatten(), (*span.slots.shape, *key.shape[1:])
    cached = kv.keys[layer].index_select(0, flat), kv.values[layer].index_select(0, flat)
    return cached[0].view(dims).transpose(1, 2), cached[1].view(dims).transpose(1, 2)


def _attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, sinks: Tensor | None) -> Tensor:
    """query [B x Q, H, D] on keys and values [B, K, S, D]; returns [B x Q, H, D]."""
    num_rows, num_kv_heads = keys.shape[:2]
    num_heads, head_dim = query.shape[1:]
    num_tokens = len(query) // num_rows
    if num_tokens == 1:
        # heads of a group look at one and the same context, so that they are as good as G tokens
        query = query.view(num_rows, num_kv_heads, -1, head_dim)
        sinks = None if sinks is None else sinks.view(num_kv_heads, -1, 1)
    else:
        query = query.view(num_rows, num_tokens, num_heads, head_dim).transpose(1, 2)
        sinks = None if sinks is None else sinks.view(num_heads, 1, 1)
    if sinks is not None:
        assert mask is not None
        keys, values = F.pad(keys, (0, 0, 0, 1)), F.pad(values, (0, 0, 0, 1))
        dims = query.shape[:3]
        mask = torch.cat((mask.expand(*dims, -1), sinks.to(query.dtype).expand(*dims, 1)), -1)
    mixed = F.scaled_dot_product_attention(
        query, keys, values, attn_mask=mask, is_causal=mask is None, enable_gqa=num_tokens > 1
    )
    if num_tokens > 1:
        mixed = mixed.transpose(1, 2)
    return mixed.reshape(-1, num_heads, head_dim)
