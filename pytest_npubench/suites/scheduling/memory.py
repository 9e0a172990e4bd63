"""What a serving campaign needs of a device's memory (campaign/memory.py): one model's weights and its paged cache.

Worked example: qwen3-30b-a3b in bf16: 61.1 GB of weights, and 98,304 bytes of cache a token.
"""

from __future__ import annotations

from typing import Any

from pytest_npubench.campaign.memory import MemoryNeed, MemoryRoom
from pytest_npubench.campaign.protocol import CaseKind
from pytest_npubench.core.case import Case
from pytest_npubench.engines.kv_capacity import dtype_bytes
from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.suites.scheduling.plan import ServingPlan

SCORE_BYTES = 4
GRAPH_ROWS, GRAPH_KEYS = 256, 65_536  # of the largest CUDA graph, whose memory is its own
INDEX_BYTES, TABLE_BYTES = 8, 4  # of a chosen expert, and of a block in a table
PASS_CHUNKS = 32  # prompts that run whole are longer than a chunk: 32 chunks of 512 are 16,384 tokens


def too_large(case: Case, kind: CaseKind[Any], plan: ServingPlan, whole: MemoryNeed, room: MemoryRoom) -> str:
    return f"needs {whole}; the device has {room}"


def given_up(plan: ServingPlan, room: MemoryRoom) -> str:
    return "all"


def campaign_need(plan: ServingPlan) -> MemoryNeed:
    """Counts what each device of one engine needs with the model's weights and its KV cache; the policies take turns on
    it.

    Devices share heads and experts out, and each has the tables whole. jax_moe has at least one key-value head on each,
    and keeps hidden states by slot of the cache."""
    shape, serving, each = plan.shape, plan.serving, dtype_bytes(plan.serving.dtype)
    num_devices = plan.spec.tensor_parallel
    tables = (1 if shape.tied_embeddings else 2) * shape.vocab_size * shape.hidden
    heads_share = max(1, shape.num_kv_heads // num_devices) / shape.num_kv_heads
    states_bytes = shape.hidden * each if plan.framework == "jax" else 0.0
    return MemoryNeed(
        weight_bytes=((shape.num_parameters - tables) / num_devices + tables) * each,
        cache_bytes=(serving.kv_capacity_tokens + serving.block_size_tokens)
        * (shape.kv_bytes_per_token(each) * heads_share + states_bytes),
        working_bytes=_serving_working_bytes(plan, shape, each),
    )


def _serving_working_bytes(plan: ServingPlan, shape: DecoderShape, each: float) -> float:
    """Activations of a pass of PASS_CHUNKS chunks, the logits of a decode batch, and one layer's keys and values, which
    FlashAttention 2 wants gathered; and what CUDA graphs keep: the same of the largest, its block tables, and the
    hidden states and experts that each size hands over, 2 x GRAPH_ROWS in all. A pass of longer prompts may need more:
    then that point fails alone.

    A token of a mixture is k rows: gathered, gate and up, their product, the result, and the result in tokens' order.
    """
    serving = plan.serving
    tokens = min(serving.kv_capacity_tokens, PASS_CHUNKS * plan.most_tokens_per_iteration)
    heads = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim
    rows = shape.experts_per_token * (2 * shape.hidden + 4 * shape.intermediate)
    of_token = each * (4 * shape.hidden + 2 * heads + rows)
    handed_over = each * shape.hidden + INDEX_BYTES * shape.num_layers * shape.experts_per_token
    table = TABLE_BYTES * serving.kv_capacity_tokens / serving.block_size_tokens
    of_key = shape.kv_bytes_per_token(each) / shape.num_layers
    has_graphs = plan.graphs and plan.spec.family == "cuda"
    graphs = GRAPH_ROWS * (of_token + table + 2 * handed_over) + GRAPH_KEYS * of_key if has_graphs else 0.0
    return (
        tokens * of_token
        + graphs
        + serving.kv_capacity_tokens * of_key
        + SCORE_BYTES * serving.max_batch_size * shape.vocab_size
    )
