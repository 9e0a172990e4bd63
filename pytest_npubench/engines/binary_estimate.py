"""Seconds of a binary by its compiler's cycles. What carries no cycles is priced beside them, and said.

    cycles_s       cycles / clock
    vector_s       products with one row, which run on the vector unit, by their bytes over the memory bandwidth where
                   their cycles are more than twice that; those cycles are then not in cycles_s
    kernels_s      hand-written attention, which carries no cycles, by its machine code where that is known
                   (attention_bundles.py), else by its arithmetic over the peak
    collectives_s  a ring all-reduce sends 2 (n - 1) / n of its bytes over each chip's links; 0 where the file has none
    bound_s        the roofline: the larger of arithmetic over peak FLOP/s and bytes over peak memory bandwidth

Worked example: the vocabulary of Llama-3.1-8B for one row is 128,256 x 4,096 weights in bf16, 1.05 GB. On a TPU v6e
the compiler says 4,428,393 cycles, 2.53 ms at 1.75 GHz; 1.05 GB over 1,640 GB/s are 0.64 ms, and that counts.

Clocks are those of the hardware file. The estimates were held against operators that others measured on a TPU v6e
(docs/compiled.md); they are no measurement.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_npubench.core.hardware import HardwareSpec
from pytest_npubench.core.measurement import Phase
from pytest_npubench.engines.binary_facts import BinaryFacts
from pytest_npubench.engines.hlo import Total
from pytest_npubench.engines.shapes import DecoderShape

OVERPRICED = 2.0
"""From here on the vector unit's cycles are taken for the model's mistake: memory, not arithmetic, bounds one row."""

NO_CYCLES = "no estimate: this compiler tells no cycles"
NO_ESTIMATE = "no estimate: XLA's GPU cost model without autotuning is unusable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Seconds, each part for itself; bound_s is None where the file lacks a peak. unpriced: what no part holds,
    assumed: what the price takes for granted and a device need not keep."""

    cycles_s: float
    vector_s: float
    kernels_s: float
    collectives_s: float
    bound_s: float | None
    unpriced: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()

    @property
    def total_s(self) -> float:
        return self.cycles_s + self.vector_s + self.kernels_s + self.collectives_s


def estimate(
    facts: BinaryFacts | Total, spec: HardwareSpec, shape: DecoderShape, phase: Phase, bucket: int
) -> Estimate:
    """Returns the estimate of one prefill of a whole bucket, or of one decode step at its end. Raises ConfigError for a
    binary without cycles and for a file without clock. A Total has no roofline."""
    from pytest_npubench.errors import ConfigError

    if facts.cycles is None:
        raise ConfigError(NO_ESTIMATE)
    if spec.compiler is None or spec.compiler.clock is None:
        raise ConfigError(f"the hardware file {spec.file_name} has no [compiler] with a clock")
    flops, links, unpriced = spec.peak.flops_per_s.get(spec.dtype), spec.peak.interconnect_bandwidth_bytes_per_s, []
    share = spec.tensor_parallel
    kernel_flops = attention_flops(shape, bucket) / share if facts.kernels and phase is Phase.PREFILL else 0.0
    kernel_cycles = facts.kernel_cycles if isinstance(facts, BinaryFacts) else None
    if kernel_flops and flops is None and kernel_cycles is None:
        unpriced.append("kernels: no peak FLOP/s in the hardware file")
    if facts.collectives and links is None:
        unpriced.append("collectives: no interconnect bandwidth in the hardware file")
    if facts.unknown_loops:
        unpriced.append("loops of unknown length count once")
    assumed = [
        *(["kernels at a bundle a cycle, waiting for nothing"] if kernel_cycles is not None else []),
        *(["kernels at peak FLOP/s"] if kernel_cycles is None and kernel_flops and flops else []),
        *(["collectives at the links' full bandwidth"] if facts.collectives and links else []),
        *(["attention as XLA compiles it: a kernel in its place may take longer"] if phase is Phase.DECODE else []),
    ]
    per_device = 1 / spec.devices_per_chip
    sent = 2 * (share - 1) / share * facts.collective_bytes
    vector_cycles, vector_s = _overpriced(facts, spec)
    kernels_s = kernel_flops / (flops.value * per_device) if flops else 0.0
    if kernel_cycles is not None:
        kernels_s = kernel_cycles / spec.compiler.clock.value
    return Estimate(
        cycles_s=(facts.cycles - vector_cycles) / spec.compiler.clock.value,
        vector_s=vector_s,
        kernels_s=kernels_s,
        collectives_s=sent / (links.value * per_device) if links else 0.0,
        bound_s=_bound_s(facts, spec, phase, kernel_flops) if isinstance(facts, BinaryFacts) else None,
        unpriced=tuple(unpriced),
        assumed=tuple(assumed),
    )


def attention_flops(shape: DecoderShape, length: int) -> float:
    """Returns the FLOP of a causal prompt's attention, all layers: half of 4 x length^2 x heads x head dimension."""
    return 2.0 * length**2 * shape.num_heads * shape.head_dim * shape.num_layers


def _overpriced(facts: BinaryFacts | Total, spec: HardwareSpec) -> tuple[float, float]:
    """Cycles that do not count, and the seconds that count in their place."""
    bandwidth = spec.peak.memory_bandwidth_bytes_per_s
    clock = spec.compiler.clock if spec.compiler else None
    if clock is None or bandwidth is None or not facts.vector_cycles or not facts.vector_bytes:
        return 0.0, 0.0
    read_s = facts.vector_bytes / (bandwidth.value / spec.devices_per_chip)
    if facts.vector_cycles / clock.value <= OVERPRICED * read_s:
        return 0.0, 0.0
    return facts.vector_cycles, read_s


def _bound_s(facts: BinaryFacts, spec: HardwareSpec, phase: Phase, kernel_flops: float) -> float | None:
    flops, bandwidth = spec.peak.flops_per_s.get(spec.dtype), spec.peak.memory_bandwidth_bytes_per_s
    if flops is None or bandwidth is None:
        return None
    # a prefill writes one row of the caches, a decode step reads all of them
    read = facts.argument_bytes - (facts.donated_bytes if phase is Phase.PREFILL else 0.0)
    per_device = 1 / spec.devices_per_chip
    return max((facts.flops + kernel_flops) / (flops.value * per_device), read / (bandwidth.value * per_device))
