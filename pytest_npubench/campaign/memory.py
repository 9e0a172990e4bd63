"""What a campaign needs of each device's memory, worked out from shapes before anything is compiled.

    need  = weights + key-value caches + working memory + binaries
    room  = usable fraction x the smaller of what the hardware file and the device itself say

Bucket suite: the reference decoder keeps the caches of all loaded buckets (engines/jax_dense/engine.py): they add up.
Heads, feed-forward width and vocabulary are shared out over a tensor-parallel group, and with them weights and caches.
Worked example: qwen3-14b in bf16, batch 32, on 4 chips. A token leaves 163,840 bytes, and the seven buckets hold 16,256
positions: 29.54 / 4 = 7.4 GB of weights and 163,840 x 32 x 16,256 / 4 = 21.3 GB of caches a chip. A TPU v5e lends
0.9 x 16 = 14.4 GB, which holds the buckets up to 2048: 7.4 + 5.2 GB and the reserve below.

Scheduling suite: one model's weights and its paged cache. qwen3-30b-a3b in bf16: 61.1 GB and 98,304 bytes a token.

Working memory is an estimate and is meant to be too high rather than too low: every activation of a layer counts as if
none took another's place. Nothing here was measured on an accelerator.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pytest_npubench.backends.protocol import Device
from pytest_npubench.campaign.aihub.plan import HubPlan
from pytest_npubench.campaign.kinds.protocol import CaseKind
from pytest_npubench.campaign.plan import Plan
from pytest_npubench.campaign.points import Point
from pytest_npubench.campaign.protocol import CampaignPlan
from pytest_npubench.campaign.serving.plan import ServingPlan
from pytest_npubench.case import Case
from pytest_npubench.engines.jax_dense.memory import cache_bytes, weight_bytes
from pytest_npubench.engines.moe_shapes import MoeShape
from pytest_npubench.engines.shapes import DecoderShape, decoder_shape
from pytest_npubench.engines.virtual.memory import dtype_bytes
from pytest_npubench.errors import NpubenchError

# JAX is given XLA_PYTHON_CLIENT_MEM_FRACTION = 0.9; torch takes what it needs, beside a CUDA context of half a GB.
USABLE_FRACTIONS = {"jax": 0.9, "torch": 0.95, "vllm": 0.95}
# a bucket's programs in the device's memory, in the mean of 128 to 8192: prefill (27 to 106 MB, llama-3.2-1b on a v5e),
# decode (21 MB) and a move
BUCKET_BINARY_BYTES = 96 * 2**20
QUERY_BLOCK = 256  # queries that attend at a time in prefill
SCORE_BYTES = 4
PASS_CHUNKS = 32  # prompts that run whole are longer than a chunk: 32 chunks of 512 are 16,384 tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryNeed:
    """Bytes on each device of a group. working_bytes: activations and other temporaries, and binaries."""

    weight_bytes: float
    cache_bytes: float
    working_bytes: float

    @property
    def total_bytes(self) -> float:
        return self.weight_bytes + self.cache_bytes + self.working_bytes

    def __str__(self) -> str:
        return (
            f"{_gb(self.weight_bytes)} of weights, {_gb(self.cache_bytes)} of cache and {_gb(self.working_bytes)} of "
            "temporaries and binaries"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRoom:
    """What one device has, and which fraction of it the runtime may take."""

    device_bytes: float
    fraction: float

    @property
    def usable_bytes(self) -> float:
        return self.device_bytes * self.fraction

    def __str__(self) -> str:
        return f"{_gb(self.usable_bytes)} ({self.fraction:.0%} of {_gb(self.device_bytes)})"


def memory_room(plan: CampaignPlan, devices: Sequence[Device] = ()) -> MemoryRoom | None:
    """What each of these devices lends a campaign: by the hardware file alone where none is given or none tells its
    memory. None where nobody says, and where the memory is not ours to fill (a server, a phone in a device farm)."""
    if isinstance(plan, HubPlan) or not isinstance(plan, (Plan, ServingPlan)):
        return None
    known = [plan.spec.device_memory_bytes, *(device.memory_bytes for device in devices)]
    if devices and plan.spec.family == "cpu":
        known.append(_host_memory_bytes())
    said = [float(value) for value in known if value]
    if not said:
        return None
    return MemoryRoom(device_bytes=min(said), fraction=USABLE_FRACTIONS[plan.framework])


def why_not_fit(case: Case, kind: CaseKind[Any], plan: CampaignPlan, devices: Sequence[Device] = ()) -> str:
    """Why the case does not fit these devices, with the numbers; empty where it does, and where nobody knows.

    Of buckets that do not fit together the largest give way, whichever cases were selected: what is kept is a matter of
    the plan and the device.
    """
    room = memory_room(plan, devices)
    try:
        if room is None or (whole := campaign_need(plan)) is None or whole.total_bytes <= room.usable_bytes:
            return ""
        if isinstance(plan, ServingPlan):
            return f"needs {whole}; the device has {room}"
        assert isinstance(plan, Plan)
        kept, needed = fitting_buckets(plan, room), needed_buckets(case, kind, plan)
    except NpubenchError:  # an unknown model, a workload that cannot be read: the case itself says so
        return ""
    if not needed or max(needed) in kept:
        return ""
    need = bucket_need(plan, [bucket for bucket in plan.buckets if bucket <= max(needed)])
    where = "the device" if plan.spec.tensor_parallel == 1 else f"each of {plan.spec.tensor_parallel} devices"
    rest = f"buckets up to {kept[-1]} fit" if kept else "no bucket fits"
    return f"buckets up to {max(needed)} need {need}; {where} has {room}; {rest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A campaign against one device's memory. skipped: what gives way, in words; empty where everything fits."""

    plan: CampaignPlan
    need: MemoryNeed
    room: MemoryRoom
    skipped: str


def fit(plan: CampaignPlan) -> Fit | None:
    """By the hardware file alone; None where it says nothing. Raises RegistryError on a model that no shape has."""
    room, need = memory_room(plan), campaign_need(plan)
    if room is None or need is None:
        return None
    skipped = ""
    if need.total_bytes > room.usable_bytes:
        kept = fitting_buckets(plan, room) if isinstance(plan, Plan) else ()
        skipped = f"buckets above {kept[-1]}" if kept else "all"
    return Fit(plan=plan, need=need, room=room, skipped=skipped)


def campaign_need(plan: CampaignPlan) -> MemoryNeed | None:
    """Of the whole campaign; None where it is not known. Raises RegistryError on a model that no shape has."""
    if isinstance(plan, ServingPlan):
        return serving_need(plan)
    # vLLM sizes its own cache, and AI Hub's devices are not ours
    if isinstance(plan, Plan) and not isinstance(plan, HubPlan) and not plan.on_vllm:
        return bucket_need(plan, plan.buckets)
    return None


def fitting_buckets(plan: Plan, room: MemoryRoom) -> tuple[int, ...]:
    """The buckets that fit together, smallest first."""
    kept: tuple[int, ...] = ()
    for bucket in plan.buckets:
        if bucket_need(plan, (*kept, bucket)).total_bytes > room.usable_bytes:
            break
        kept = (*kept, bucket)
    return kept


def needed_buckets(case: Case, kind: CaseKind[Any], plan: Plan) -> tuple[int, ...]:
    """The buckets that a case's points run in or move between; none for canary kernels."""
    points: tuple[Point, ...] = kind.points(case, plan)  # type: ignore[assignment]  # those of a Plan
    moved = {bucket for point in points if point.move for bucket in point.move}
    return tuple(sorted(moved | set(plan.touched(point for point in points if point.requests))))


def bucket_need(plan: Plan, buckets: Sequence[int]) -> MemoryNeed:
    """Of the reference decoder with these buckets loaded, on each device of the plan's group."""
    shape, dtype, num_devices = decoder_shape(plan.model), plan.spec.dtype, plan.spec.tensor_parallel
    largest = max(buckets, default=0)
    working_bytes = _decoder_working_bytes(shape, plan.batch_size, largest, num_devices, dtype_bytes(dtype))
    return MemoryNeed(
        weight_bytes=weight_bytes(shape, dtype, num_devices),
        cache_bytes=sum(cache_bytes(shape, bucket, plan.batch_size, dtype, num_devices) for bucket in buckets),
        working_bytes=working_bytes + len(buckets) * BUCKET_BINARY_BYTES,
    )


def _decoder_working_bytes(shape: DecoderShape, batch_size: int, bucket: int, num_devices: int, each: float) -> float:
    """The larger of prefilling one prompt and of a decode step, in the largest bucket.

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


def serving_need(plan: ServingPlan) -> MemoryNeed:
    """Of one engine with the model's weights and its KV cache; the policies take turns on it."""
    shape, serving, each = plan.shape, plan.serving, dtype_bytes(plan.serving.dtype)
    return MemoryNeed(
        weight_bytes=shape.num_parameters * each,
        cache_bytes=(serving.kv_capacity_tokens + serving.block_size_tokens) * shape.kv_bytes_per_token(each),
        working_bytes=_serving_working_bytes(plan, shape, each),
    )


def _serving_working_bytes(plan: ServingPlan, shape: MoeShape, each: float) -> float:
    """Activations of a pass of PASS_CHUNKS chunks, the logits of a decode batch, and one layer's keys and values, which
    FlashAttention 2 wants gathered. A pass of longer prompts may need more: then that point fails alone.

    A token of a mixture is k rows: gathered, gate and up, their product, the result, and the result in tokens' order.
    """
    serving = plan.serving
    per_iteration = max([serving.tokens_per_iteration, *map(plan.tokens_per_iteration, plan.loads)])
    tokens = min(serving.kv_capacity_tokens, PASS_CHUNKS * per_iteration)
    heads = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim
    rows = shape.experts_per_token * (2 * shape.hidden + 4 * shape.expert_intermediate)
    activations = tokens * each * (4 * shape.hidden + 2 * heads + rows)
    gathered = serving.kv_capacity_tokens * shape.kv_bytes_per_token(each) / shape.num_layers
    return activations + gathered + SCORE_BYTES * serving.max_batch_size * shape.vocab_size


def _host_memory_bytes() -> int | None:
    """Physical memory of this machine; a container's limit may be lower, and is not asked for."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):  # a system without the name, or without sysconf
        return None


def _gb(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:.1f} GB"
