"""A ragged batch: the tokens of all rows of one pass one after another, no padding between them.

First come rows of one token each, decode rows and then padding rows; behind them the prefill rows. Everything the
layers need of it is on the device before the first of them runs.

Worked example: request 1 decodes its token 40, request 7 prefills tokens 8 to 11: T = 5 tokens at positions
(40, 8, 9, 10, 11), N = 2 rows that look back on (41, 12) tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pytest_npubench.engines.torch_moe.kv_cache import PagedKvCache
from pytest_npubench.serving.iteration import PrefillRow


@dataclass(frozen=True, slots=True, kw_only=True)
class RaggedBatch:
    """N rows, T tokens. positions and slots [T]; tables [N, blocks] are block tables, firsts [N] first positions.

    rows[:num_single] are of one token, the last num_padding of them padding. A static batch, whose numbers change while
    its tensors stay, has no rows here.
    """

    rows: tuple[PrefillRow, ...]
    num_single: int
    num_padding: int
    block_size_tokens: int
    positions: Tensor
    slots: Tensor
    tables: Tensor
    firsts: Tensor

    @property
    def num_decode(self) -> int:
        return self.num_single - self.num_padding

    @property
    def prefill(self) -> tuple[PrefillRow, ...]:
        return self.rows[self.num_single :]


def ragged_batch(
    decode: Sequence[PrefillRow], padding: Sequence[PrefillRow], prefill: Sequence[PrefillRow], kv: PagedKvCache
) -> RaggedBatch:
    """Returns the batch of rows whose KV blocks are reserved. Padding rows read as their request does and write to
    scratch."""
    rows = (*decode, *padding, *prefill)
    slots = [kv.slots(*row) for row in decode]
    slots += [np.array([kv.scratch_slot])] * len(padding)
    slots += [kv.slots(*row) for row in prefill]
    device = kv.keys.device

    def put(values: object) -> Tensor:
        return torch.as_tensor(values, device=device)

    return RaggedBatch(
        rows=rows,
        num_single=len(decode) + len(padding),
        num_padding=len(padding),
        block_size_tokens=kv.block_size_tokens,
        positions=put(np.concatenate([np.arange(first, first + count) for _, first, count in rows])),
        slots=put(np.concatenate(slots)),
        tables=put(kv.tables(tuple(row.request for row in rows))),
        firsts=put(np.array([row.first_token for row in rows])),
    )
