"""The tensors of a paged KV cache (engines/block_tables.py says which slot is whose)."""

from __future__ import annotations

import torch

from pytest_npubench.engines.block_tables import BlockTables
from pytest_npubench.engines.shapes import DecoderShape


class PagedKvCache(BlockTables):
    """keys and values [num_layers, slots, num_kv_heads, head_dim] on the device, a block of scratch at the end."""

    def __init__(
        self,
        shape: DecoderShape,
        *,
        capacity_tokens: int,
        block_size_tokens: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        super().__init__(
            capacity_tokens=capacity_tokens,
            block_size_tokens=block_size_tokens,
            bytes_per_token=shape.kv_bytes_per_token(dtype.itemsize),
        )
        num_slots = self.scratch_slot + block_size_tokens
        dims = (shape.num_layers, num_slots, shape.num_kv_heads, shape.head_dim)
        # zeros, since masked slots are multiplied by zero and what was never written might not be finite
        self.keys = torch.zeros(dims, device=device, dtype=dtype)
        self.values = torch.zeros(dims, device=device, dtype=dtype)
