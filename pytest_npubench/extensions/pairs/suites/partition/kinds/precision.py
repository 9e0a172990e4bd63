"""One operator in fp32, in bf16 and with 4-bit weights (W4A16): each unit alone, and the rows in halves.

Decode (one token on cold weights) is bound by the bytes of the weights, which 4 bits make an eighth of; prefill by
arithmetic, where the kernels decide. A unit without kernels of a format dequantises or converts first, so that the
format gains nothing there: it is measured all the same, and the case says so. Nothing has a limit.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, replace

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Axes, Case
from pytest_npubench.extensions.pairs.paired_rounds import time_metric, whole_rounds
from pytest_npubench.extensions.pairs.partition.matmul import GPU, NPU, alone, row_split
from pytest_npubench.extensions.pairs.partition.number_formats import DTYPES, FP32, GROUP
from pytest_npubench.extensions.pairs.suites.partition.experiment import (
    PartitionExperiment,
    ratio_metric,
    total_s,
    unit_metrics,
)
from pytest_npubench.extensions.pairs.suites.partition.plan import PartitionPlan
from pytest_npubench.extensions.pairs.suites.partition.points import SplitPoint
from pytest_npubench.verdict import judge_gates
from pytest_npubench.verdict.result import Judgement

OPENVINO = "openvino:"  # its pairs multiply in fp32
WAYS = ("gpu", "npu", "split")


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatTimes:
    """Seconds in one number format, medians over the rounds. speedup: the fastest way in fp32 over the fastest in this
    format. says: what to make of it."""

    dtype: str
    gpu_s: float
    npu_s: float
    split_s: float
    speedup: float
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionDetail:
    """operator: rows, columns, tokens. weights: "cold" (from memory) or "warm"."""

    operator: tuple[int, int, int]
    weights: str
    formats: tuple[FormatTimes, ...]


class PrecisionKind(PartitionExperiment):
    name = "precision"

    def axes(self, plan: PartitionPlan) -> Iterable[Axes]:
        """Returns the axes, without operators whose columns fill no group of 4-bit weights."""
        if plan.pair.startswith(OPENVINO):
            return ()
        names = [name for name in plan.operator_names if plan.matmul(name, 1).cols % GROUP == 0]
        return tuple((("operator", name), ("phase", phase)) for name in names for phase in ("prefill", "decode"))

    def points(self, case: Case, plan: PartitionPlan) -> tuple[SplitPoint, ...]:
        """By format, each unit alone and the rows in halves."""
        tokens = 1 if case.axis("phase") == "decode" else plan.partition.standard_sizes[-1]
        whole = plan.matmul(str(case.axis("operator")), tokens)
        matmuls = [replace(whole, dtype=dtype) for dtype in DTYPES]
        return tuple(
            SplitPoint(matmul=matmul, split=split, is_cold=matmul.is_decode)
            for matmul in matmuls
            for split in (alone(matmul, GPU), alone(matmul, NPU), row_split(matmul))
        )

    def judge(self, case: Case, plan: PartitionPlan, measured: Measured) -> Judgement:
        points = self.points(case, plan)
        measured = whole_rounds(measured, points)
        times_s = [total_s(measured, point) for point in points]
        by_dtype = {dtype: times_s[len(WAYS) * index :][: len(WAYS)] for index, dtype in enumerate(DTYPES)}
        fastest = {dtype: min(ways, key=statistics.median) for dtype, ways in by_dtype.items()}
        speedups = {dtype: ratio_metric(f"{dtype}_speedup", fastest[FP32], fastest[dtype]) for dtype in DTYPES}
        matmul, weights = points[0].matmul, "cold" if points[0].is_cold else "warm"
        gains = ", ".join(f"{dtype} x{speedups[dtype].value:.3g}" for dtype in DTYPES[1:])
        return Judgement(
            verdict=judge_gates(()),
            what=f"fp32 / other number formats, {weights} weights: {gains}",
            metrics=(
                *(
                    each
                    for dtype, (gpu_s, npu_s, split_s) in by_dtype.items()
                    for each in (*unit_metrics(gpu_s, npu_s, f"{dtype}_"), time_metric(f"{dtype}_split_s", split_s))
                ),
                *(replace(speedups[dtype], gate="none") for dtype in DTYPES[1:]),
            ),
            detail=PrecisionDetail(
                operator=(matmul.rows, matmul.cols, matmul.tokens),
                weights=weights,
                formats=tuple(
                    FormatTimes(
                        dtype=dtype,
                        **dict(zip(("gpu_s", "npu_s", "split_s"), map(statistics.median, ways), strict=True)),
                        speedup=speedups[dtype].value,
                        says=_says(dtype, speedups[dtype].value),
                    )
                    for dtype, ways in by_dtype.items()
                ),
            ),
        )


def _says(dtype: str, speedup: float) -> str:
    if dtype == FP32:
        return "what the others are held against"
    return "pays" if speedup > 1 else "pays nothing here: no unit has a kernel for it that is faster than fp32"


KIND = PrecisionKind()
