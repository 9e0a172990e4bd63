"""What binds a bucket's prefill and decode step: arithmetic, memory, launches, or the power cap.

    compute    arithmetic over peak FLOP/s is the larger bound
    memory     bytes of weights and caches over peak bandwidth are
    launch     the time is over LAUNCH times both, so neither: launching, the host, synchronising
    power cap  the device was held back by its power limit in over CAPPED of the rounds' time

The roofline (Williams et al., 2009) counts products and attention alone. Arithmetic and bytes are those of one device
of the group, to which both are shared out.

Worked number: a decode step of llama-3.2-1b in bf16 reads 2.47 GB of weights, 0.74 ms at an H100's 3.35 TB/s, and
multiplies 8 rows, 0.02 ms at 989 TFLOP/s. In 1 ms it is bound by memory; in 2 ms, 2.7 times the larger, by launches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.measurement import Phase
from pytest_npubench.suites.buckets.plan import BucketPlan
from pytest_npubench.suites.buckets.profile_detail import Binding

if TYPE_CHECKING:
    from pytest_npubench.engines.shapes import DecoderShape

LAUNCH = 2.0
CAPPED = 0.05
POWER = "power"


def bindings(
    plan: BucketPlan, measured: Measured, bucket: int, times_s: Mapping[Phase, float]
) -> dict[str, Binding] | None:
    """Says by phase what binds a prefill of one prompt and a decode step of the batch that take so long; None where the
    hardware file lacks a peak."""
    flops = plan.spec.peak.flops_per_s.get(plan.spec.dtype)
    bandwidth = plan.spec.peak.memory_bandwidth_bytes_per_s
    if flops is None or bandwidth is None:
        return None
    num_chips = plan.spec.tensor_parallel / plan.spec.devices_per_chip
    is_capped = capped_fraction(measured) > CAPPED
    by_phase = {}
    for phase, seconds in times_s.items():
        work, read = step_work(plan, phase, bucket)
        compute_s, memory_s = work / (flops.value * num_chips), read / (bandwidth.value * num_chips)
        bound = "compute" if compute_s > memory_s else "memory"
        constraint = "launch" if seconds > LAUNCH * max(compute_s, memory_s) else bound
        by_phase[phase.value] = Binding(
            constraint="power cap" if is_capped and constraint != "launch" else constraint,
            of_compute=seconds / compute_s,
            of_memory=seconds / memory_s,
        )
    return by_phase


def step_work(plan: BucketPlan, phase: Phase, bucket: int) -> tuple[float, float]:
    """FLOPs of a step and bytes that it has to read, of the whole group: all weights, and in a decode step all keys and
    values of the bucket."""
    if phase is Phase.PREFILL:
        return prefill_work(plan, (bucket,))
    return decode_work(plan, plan.batch_size, plan.batch_size * bucket)


def prefill_work(plan: BucketPlan, lengths: Sequence[int], num_passes: int = 1) -> tuple[float, float]:
    """Counts the work of prompts padded to these lengths, with the weights read once in each of so many passes."""
    from pytest_npubench.engines.binary_estimate import attention_flops

    shape, weights = _shape(plan), _weight_bytes(plan)
    head = shape.vocab_size * shape.hidden
    layers = shape.num_active_parameters - head
    flops = sum(2.0 * (layers * length + head) + attention_flops(shape, length) for length in lengths)
    return flops, num_passes * weights


def decode_work(plan: BucketPlan, num_tokens: int, kv_tokens: int, num_steps: int = 1) -> tuple[float, float]:
    """Counts the work of so many decode steps, which make num_tokens in all and attend to kv_tokens in all."""
    from pytest_npubench.engines.jax_dense.memory import dtype_bytes

    shape = _shape(plan)
    attended = 4.0 * shape.num_layers * shape.num_heads * shape.head_dim * kv_tokens
    kv_bytes = kv_tokens * shape.kv_bytes_per_token(dtype_bytes(plan.spec.dtype))
    return 2.0 * shape.num_active_parameters * num_tokens + attended, num_steps * _weight_bytes(plan) + kv_bytes


def _shape(plan: BucketPlan) -> DecoderShape:
    from pytest_npubench.engines.shapes import dense_shape

    shape = dense_shape(plan.model)
    return shape if plan.num_layers is None else replace(shape, num_layers=plan.num_layers)


def _weight_bytes(plan: BucketPlan) -> float:
    """Counts the bytes of all matrices, the vocabulary's included. A step reads few rows of a table of embeddings."""
    from pytest_npubench.engines.jax_dense.memory import dtype_bytes

    return float(_shape(plan).num_active_parameters * dtype_bytes(plan.spec.dtype))


def capped_fraction(measured: Measured) -> float:
    """Returns the share of the rounds' time in which the power limit held the device back; 0 where nobody tells."""
    states = [item.state for item in measured.watched if item.state is not None]
    capped_s = sum(
        seconds for state in states for name, seconds in (state.throttled_s or {}).items() if POWER in name.lower()
    )
    all_s = sum(state.duration_s for state in states)
    return capped_s / all_s if all_s else 0.0
