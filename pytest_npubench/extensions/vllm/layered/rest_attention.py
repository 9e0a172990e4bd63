"""Attention metadata and KV slots of the rows that are not on their way, for the layers outside a stage's group.

vLLM builds metadata for the whole batch out of its persistent buffers; here the same is built for some of the rows,
from the same buffers, by the same builders. B rest requests with r tokens: query_start_loc (B + 1,), seq_lens (B,),
block table (B, blocks), slots (r,).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from vllm.v1.attention.backend import CommonAttentionMetadata

from pytest_npubench.extensions.vllm.layered.rows import Rows


def rest_attention(
    runner: Any, rows: Rows, slots: Mapping[str, torch.Tensor]
) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """(metadata, slots) by layer name, of a V1 model runner whose inputs have been prepared. `slots` are all rows."""
    tokens = torch.from_numpy(rows.rest_tokens).to(runner.device)
    metadata: dict[str, Any] = {}
    rest_slots: dict[str, torch.Tensor] = {}
    for group_id, group in enumerate(runner.kv_cache_config.kv_cache_groups):
        slot_mapping = slots[group.layer_names[0]][tokens]
        common = _common_metadata(runner, rows, tokens, group_id, slot_mapping)
        rest_slots.update(dict.fromkeys(group.layer_names, slot_mapping))
        for attention in runner.attn_groups[group_id]:
            metadata.update(dict.fromkeys(attention.layer_names, attention.build_metadata(common)))
    return metadata, rest_slots


def _common_metadata(
    runner: Any, rows: Rows, tokens: torch.Tensor, group_id: int, slot_mapping: torch.Tensor
) -> CommonAttentionMetadata:
    batch = runner.input_batch
    indices = torch.from_numpy(rows.rest_requests)
    on_device = indices.to(runner.device)
    starts = torch.from_numpy(np.concatenate(([0], np.cumsum(rows.rest_counts))).astype(np.int32))
    lengths = runner.optimistic_seq_lens_cpu[indices]
    return CommonAttentionMetadata(
        query_start_loc=starts.to(runner.device),
        query_start_loc_cpu=starts,
        seq_lens=runner.seq_lens[on_device],
        seq_lens_cpu_upper_bound=lengths,
        num_reqs=len(rows.rest_requests),
        num_actual_tokens=len(rows.rest_tokens),
        max_query_len=int(rows.rest_counts.max()),
        max_seq_len=int(lengths.max()),
        block_table_tensor=batch.block_table[group_id].get_device_tensor(batch.num_reqs)[on_device],
        slot_mapping=slot_mapping,
        causal=True,
        is_prefilling=(batch.num_computed_tokens_cpu_tensor < batch.num_prompt_tokens_cpu_tensor)[indices],
        positions=runner.positions[tokens],
    )
