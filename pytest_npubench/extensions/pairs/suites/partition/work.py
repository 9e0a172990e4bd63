"""Times of split operators that no pair of units has.

Both units multiply at once, so their peaks add up: those of the hardware file, with the host's processors beside a
device. Worked number: 1024 x 1024 weights and 64 tokens are 134 MFLOP; two cores take 161 us of them at the least.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.bounds import CPU_CORE_FLOPS_PER_S, Peaks, bound, peaks_of, too_fast
from pytest_npubench.extensions.pairs.partition.number_formats import BF16, FP32
from pytest_npubench.extensions.pairs.suites.partition.plan import PartitionPlan
from pytest_npubench.extensions.pairs.suites.partition.points import OperatorPoint, PairPoint, SplitVisit

TILE_UNITS = 16  # times as fast as a core's vectors: AMX multiplies and adds 512 pairs of bfloat16 a cycle


def impossible(plan: PartitionPlan, points: Sequence[PairPoint], measured: Measured) -> str:
    """Why an operator of these points cannot have been multiplied, in words, of the first such one; else empty."""
    for point in dict.fromkeys(points):
        if isinstance(point, OperatorPoint) and point.name not in measured.failures:
            matmul, peaks = point.matmul, _peaks(plan, point.matmul.dtype)
            least = bound(2.0 * matmul.rows * matmul.cols * matmul.tokens, 0.0, peaks)
            times_s = [visit.total_s for row in measured.visits(point.name, SplitVisit) for visit in row]
            if reason := too_fast(min(times_s), least, peaks):
                return f"{reason} ({point.name})"
    return ""


def _peaks(plan: PartitionPlan, dtype: str) -> Peaks:
    """Returns the device's peaks: of fp32 those of units that round it to fewer bits, of 4-bit weights bf16's."""
    peaks = peaks_of(plan.spec, FP32 if dtype == FP32 else BF16)
    cores_flops_per_s = CPU_CORE_FLOPS_PER_S * (os.cpu_count() or 1) * (1 if dtype == FP32 else TILE_UNITS)
    if plan.spec.family == "cpu" and dtype != FP32:
        return replace(peaks, flops_per_s=cores_flops_per_s)
    if plan.spec.family == "cpu" or peaks.flops_per_s is None:
        return peaks
    return replace(peaks, flops_per_s=peaks.flops_per_s + cores_flops_per_s)
