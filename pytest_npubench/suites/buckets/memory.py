"""What a bucket campaign needs of a device's memory (campaign/memory.py).

The reference decoder keeps the caches of all loaded buckets (engines/jax_dense/engine.py): they add up. Heads,
feed-forward width and vocabulary are shared out over a tensor-parallel group, and with them weights and caches.
Worked example: qwen3-14b in bf16, batch 32, on 4 chips. A token leaves 163,840 bytes, and the seven buckets hold 16,256
positions: 29.54 / 4 = 7.4 GB of weights and 163,840 x 32 x 16,256 / 4 = 21.3 GB of caches a chip. A TPU v5e lends
0.9 x 16 = 14.4 GB, which holds the buckets up to 2048: 7.4 + 5.2 GB and the reserve below.

Of buckets that do not fit together the largest give way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_npubench.campaign.memory import MemoryNeed, MemoryRoom
from pytest_npubench.campaign.protocol import CaseKind
from pytest_npubench.core.case import Case
from pytest_npubench.engines.jax_dense.memory import cache_bytes, dtype_bytes, weight_bytes
from pytest_npubench.engines.shapes import DecoderShape, dense_shape
from pytest_npubench.suites.buckets.plan import BucketPlan
from pytest_npubench.suites.buckets.points import BucketPoint

# a bucket's programs in the device's memory, in the mean of 128 to 8192: prefill (27 to 106 MB, llama-3.2-1b on a v5e),
# decode (21 MB) and a move
BUCKET_BINARY_BYTES = 96 * 2**20
QUERY_BLOCK = 256  # queries that attend at a time in prefill
SCORE_BYTES = 4


def campaign_need(plan: BucketPlan) -> MemoryNeed | None:
    """With all buckets loaded; None where the memory is not ours to fill. The engines of a search always add up."""
    return bucket_need(plan, plan.buckets) if plan.service.fills_memory or plan.is_search else None


def too_large(case: Case, kind: CaseKind[Any], plan: BucketPlan, whole: MemoryNeed, room: MemoryRoom) -> str:
    kept, needed = fitting_buckets(plan, room), needed_buckets(case, kind, plan)
    if not needed or max(needed) in kept:
        return ""
    need = bucket_need(plan, [bucket for bucket in plan.buckets if bucket <= max(needed)])
    where = "the device" if plan.spec.tensor_parallel == 1 else f"each of {plan.spec.tensor_parallel} devices"
    rest = f"buckets up to {kept[-1]} fit" if kept else "no bucket fits"
    return f"buckets up to {max(needed)} need {need}; {where} has {room}; {rest}"


def given_up(plan: BucketPlan, room: MemoryRoom) -> str:
    """All of a search, whose engines have the largest bucket each."""
    kept = () if plan.is_search else fitting_buckets(plan, room)
    return f"buckets above {kept[-1]}" if kept else "all"


def fitting_buckets(plan: BucketPlan, room: MemoryRoom) -> tuple[int, ...]:
    """Returns the buckets that fit together, smallest first."""
    kept: tuple[int, ...] = ()
    for bucket in plan.buckets:
        if bucket_need(plan, (*kept, bucket)).total_bytes > room.usable_bytes:
            break
        kept = (*kept, bucket)
    return kept


def needed_buckets(case: Case, kind: CaseKind[Any], plan: BucketPlan) -> tuple[int, ...]:
    """Returns the buckets that a case's points run in or move between; none for canary kernels, all for answers."""
    points: tuple[BucketPoint, ...] = kind.points(case, plan)  # type: ignore[assignment]  # those of a BucketPlan
    if any(point.answers for point in points):
        return plan.buckets
    moved = {bucket for point in points if point.move for bucket in point.move}
    return tuple(sorted(moved | set(plan.touched(point for point in points if point.requests))))


def bucket_need(plan: BucketPlan, buckets: Sequence[int]) -> MemoryNeed:
    """Counts what the reference decoder needs with these buckets loaded, on each device of the plan's group."""
    if plan.is_search:
        needs = [
            bucket_need(plan.of(variant), [bucket for bucket in variant.buckets if bucket in buckets])
            for variant in plan.variants
        ]
        return MemoryNeed(
            weight_bytes=needs[0].weight_bytes * (1 if plan.service.shares_weights else len(needs)),
            cache_bytes=sum(need.cache_bytes for need in needs),
            working_bytes=sum(need.working_bytes for need in needs),
        )
    shape, dtype, num_devices = dense_shape(plan.model), plan.spec.dtype, plan.spec.tensor_parallel
    largest = max(buckets, default=0)
    working_bytes = _decoder_working_bytes(shape, plan.batch_size, largest, num_devices, dtype_bytes(dtype))
    return MemoryNeed(
        weight_bytes=weight_bytes(shape, dtype, num_devices),
        cache_bytes=sum(cache_bytes(shape, bucket, plan.batch_size, dtype, num_devices) for bucket in buckets),
        working_bytes=working_bytes + len(buckets) * BUCKET_BINARY_BYTES,
    )


def _decoder_working_bytes(shape: DecoderShape, batch_size: int, bucket: int, num_devices: int, each: float) -> float:
    """Returns the larger of prefilling one prompt and of a decode step, in the largest bucket.

    Prefill: hidden states in, normed, attended and out, queries, keys and values twice (rotated), gate, up and their
    product; scores of a block of queries and their softmax. Decode: one layer's keys and values once more, since an
    update may copy them, scores and softmax, logits in fp32.
    """
    heads = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim
    activations = bucket * each * (4 * shape.hidden + (2 * heads + 3 * shape.intermediate) / num_devices)
    scores = 2 * SCORE_BYTES * QUERY_BLOCK * bucket * shape.num_heads / num_devices
    layer = 2 * each * shape.num_kv_heads * shape.head_dim * bucket * batch_size / num_devices
    looked = 2 * SCORE_BYTES * batch_size * shape.num_heads * bucket / num_devices
    logits = SCORE_BYTES * batch_size * shape.vocab_size / num_devices
    return max(activations + scores, layer + looked + logits)
