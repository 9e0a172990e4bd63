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

from collections.abc import Mapping

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.measurement import Phase
from pytest_npubench.suites.buckets.kinds.profile import Binding
from pytest_npubench.suites.buckets.plan import BucketPlan

LAUNCH = 2.0
CAPPED = 0.05
POWER = "power"


def bindings(
    plan: BucketPlan, measured: Measured, bucket: int, times_s: Mapping[Phase, float]
) -> dict[str, Binding] | None:
    """By phase, of a prefill of one prompt and a decode step of the batch that take so long; None where the hardware
    file lacks a peak."""
    flops = plan.spec.peak.flops_per_s.get(plan.spec.dtype)
    bandwidth = plan.spec.peak.memory_bandwidth_bytes_per_s
    if flops is None or bandwidth is None:
        return None
    num_chips = plan.spec.tensor_parallel / plan.spec.devices_per_chip
    is_capped = capped_fraction(measured) > CAPPED
    found = {}
    for phase, seconds in times_s.items():
        work, read = step_work(plan, phase, bucket)
        compute_s, memory_s = work / (flops.value * num_chips), read / (bandwidth.value * num_chips)
        bound = "compute" if compute_s > memory_s else "memory"
        constraint = "launch" if seconds > LAUNCH * max(compute_s, memory_s) else bound
        found[phase.value] = Binding(
            constraint="power cap" if is_capped and constraint != "launch" else constraint,
            of_compute=seconds / compute_s,
            of_memory=seconds / memory_s,
        )
    return found


def step_work(plan: BucketPlan, phase: Phase, bucket: int) -> tuple[float, float]:
    """FLOPs of a step and bytes that it has to read, of the whole group: all weights, and in a decode step all keys and
    values of the bucket."""
    from pytest_npubench.engines.compiled.estimate import attention_flops
    from pytest_npubench.engines.jax_dense.memory import cache_bytes, weight_bytes
    from pytest_npubench.engines.shapes import dense_shape

    shape, dtype = dense_shape(plan.model), plan.spec.dtype
    head = shape.vocab_size * shape.hidden
    layers = shape.num_active_parameters - head
    weights = float(weight_bytes(shape, dtype, 1))
    if phase is Phase.PREFILL:
        return 2.0 * (layers * bucket + head) + attention_flops(shape, bucket), weights
    attended = 4.0 * shape.num_layers * shape.num_heads * shape.head_dim * bucket
    rows = plan.batch_size
    return rows * (2.0 * (layers + head) + attended), weights + cache_bytes(shape, bucket, rows, dtype, 1)


def capped_fraction(measured: Measured) -> float:
    """Of the rounds' time, in which the power limit held the device back; 0 where nobody tells."""
    states = [item.state for item in measured.watched if item.state is not None]
    capped_s = sum(
        seconds for state in states for name, seconds in (state.throttled_s or {}).items() if POWER in name.lower()
    )
    all_s = sum(state.duration_s for state in states)
    return capped_s / all_s if all_s else 0.0
