"""The least time that work takes on a device: its FLOP at the peak of arithmetic, its bytes at the peak of memory.

    compute_s  FLOP / peak FLOP/s
    memory_s   (bytes - what may stay on the chip from pass to pass) / peak B/s
    bound      the larger of both

A time below FASTEST of the bound is impossible: work was left out, the clock is wrong, or the hardware file is. The
room is there because makers state peaks at a clock that devices may exceed: 989.4 TFLOP/s of an H100 are 132
multiprocessors x 4,096 FLOP at 1,830 MHz, and its clock goes up to 1,980 MHz, 8.2 % more.

Weights that stay in a cache are not read from memory. So ON_CHIP_BYTES of every pass do not count, which is more than
any accelerator with a hardware file has: 170 MiB on a TPU v4 (arXiv 2304.01433, Table 4), 50 MB of L2 on an H100. A
processor's cache may be larger than that, so on a CPU the FLOP alone count. Where its file has no peak of fp32, it is
what no core exceeds: two multiply-adds of 16 numbers a cycle (AVX-512, SVE), at a clock that none reaches.

Worked number: a decode step of llama-3.1-8b in bf16 reads 15.0 GB of weights. 0.27 GB of them may be on the chip; the
rest takes 4.40 ms at an H100's 3.35 TB/s. A step of 1.8 ms took 0.41 of that.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from pytest_npubench.core.hardware import HardwareSpec

FASTEST = 0.9
ON_CHIP_BYTES = 256 * 2**20
COMPUTED_IN = {"fp32": ("fp32", "tf32", "bf16", "fp16"), "tf32": ("tf32", "bf16", "fp16")}
"""By dtype the types in which its products may run: XLA's default for fp32 is tf32 on GPUs and bf16 on TPUs, OpenVINO's
fp16. Of all others their own alone."""
CPU_CORE_FLOPS_PER_S = 64 * 6.5e9
CAUSE = "work was left out, the clock is wrong or the hardware file is"
PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """The peaks of all devices of a group together; None where the hardware file has none."""

    flops_per_s: float | None
    bytes_per_s: float | None
    on_chip_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The least seconds of some work: of the parts that arithmetic binds, and of those that memory binds."""

    compute_s: float = 0.0
    memory_s: float = 0.0

    def __add__(self, other: Bound) -> Bound:
        return Bound(compute_s=self.compute_s + other.compute_s, memory_s=self.memory_s + other.memory_s)

    @property
    def seconds(self) -> float:
        return self.compute_s + self.memory_s


def peaks_of(spec: HardwareSpec, dtype: str) -> Peaks:
    """Returns the peaks for products of that dtype, on as many chips as the hardware file puts together. A file that
    has a peak of fp32 alone says nothing of smaller dtypes."""
    num_chips = spec.tensor_parallel / spec.devices_per_chip
    stated = [name for name in COMPUTED_IN.get(dtype, (dtype,)) if name in spec.peak.flops_per_s]
    is_told = spec.family == "cpu" or stated != ["fp32"]
    flops_per_s = max((spec.peak.flops_per_s[name].value for name in stated if is_told), default=None)
    if flops_per_s is None and (spec.family, dtype) == ("cpu", "fp32"):
        flops_per_s = CPU_CORE_FLOPS_PER_S * (os.cpu_count() or 1)
    bandwidth = spec.peak.memory_bandwidth_bytes_per_s
    return Peaks(
        flops_per_s=None if flops_per_s is None else flops_per_s * num_chips,
        bytes_per_s=None if bandwidth is None or spec.family == "cpu" else bandwidth.value * num_chips,
        on_chip_bytes=ON_CHIP_BYTES * num_chips,
    )


def bound(flops: float, num_bytes: float, peaks: Peaks, num_passes: int = 1) -> Bound:
    """Returns the bound of work that is done in `num_passes`, each of which may find other data on the chip. Work
    without a known peak takes no time."""
    compute_s = flops / peaks.flops_per_s if peaks.flops_per_s else 0.0
    from_memory = max(0.0, num_bytes - num_passes * peaks.on_chip_bytes)
    memory_s = from_memory / peaks.bytes_per_s if peaks.bytes_per_s else 0.0
    return Bound(compute_s=compute_s) if compute_s >= memory_s else Bound(memory_s=memory_s)


def too_fast(seconds: float, least: Bound, peaks: Peaks) -> str:
    """Why no device takes so little time for that work, in words; empty where one may."""
    if not least.seconds or seconds >= FASTEST * least.seconds:
        return ""
    parts = []
    if least.compute_s and peaks.flops_per_s:
        parts.append(("FLOP", f"{_scaled(peaks.flops_per_s)}FLOP/s"))
    if least.memory_s and peaks.bytes_per_s:
        parts.append(("bytes", f"{_scaled(peaks.bytes_per_s)}B/s"))
    what, rates = (" and ".join(words) for words in zip(*parts, strict=True))
    share = f"{seconds / least.seconds:.2g} of the time that its {what} take at {rates}"
    return f"faster than the device can be ({share}): {CAUSE}"


def _scaled(rate_per_s: float) -> str:
    """For example "3.35 T"."""
    factor, prefix = next(((factor, prefix) for factor, prefix in PREFIXES if rate_per_s >= factor), (1.0, ""))
    return f"{rate_per_s / factor:.3g} {prefix}"
