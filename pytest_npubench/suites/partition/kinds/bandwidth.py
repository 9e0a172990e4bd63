"""Memory bandwidth of one unit and of both at once (HeteroInfer, section 3.3, Memory-1).

One unit alone draws 40 to 45 of the paper's 68 GB/s, both together 59.5: decode, which is bound by memory, gains from
two units what neither has alone. The gain is both together over the better one alone.
"""

from __future__ import annotations

import statistics

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.whole_rounds import whole_rounds
from pytest_npubench.core.case import Case
from pytest_npubench.partition.descriptors import fit_bandwidth_gain
from pytest_npubench.partition.matmul import GPU, NPU
from pytest_npubench.suites.partition.experiment import PairExperiment
from pytest_npubench.suites.partition.plan import PartitionPlan
from pytest_npubench.suites.partition.points import StreamPoint
from pytest_npubench.verdict import judge_gates
from pytest_npubench.verdict.result import Judgement, Metric

NUM_BYTES = 256 * 2**20  # larger than any cache


class BandwidthKind(PairExperiment):
    name = "bandwidth"

    def points(self, case: Case, plan: PartitionPlan) -> tuple[StreamPoint, ...]:
        return tuple(StreamPoint(units=units, num_bytes=NUM_BYTES) for units in ((GPU,), (NPU,), (GPU, NPU)))

    def judge(self, case: Case, plan: PartitionPlan, measured: Measured) -> Judgement:
        points = gpu, npu, both = self.points(case, plan)
        measured = whole_rounds(measured, points)
        gpu_alone, npu_alone = _rates(measured, gpu, GPU), _rates(measured, npu, NPU)
        beside = {unit: _rates(measured, both, unit) for unit in (GPU, NPU)}
        together = [sum(pair) for pair in zip(*beside.values(), strict=True)]
        gain = fit_bandwidth_gain({GPU: gpu_alone, NPU: npu_alone}, beside)
        rates = {"gpu_alone": gpu_alone, "npu_alone": npu_alone, "together": together}
        return Judgement(
            verdict=judge_gates(()),
            what="memory bandwidth of both units / of the better one",
            metrics=(
                Metric(name="bandwidth_gain", unit="ratio", value=gain.ratio, better="higher", gate="none"),
                *(_metric(name, values) for name, values in rates.items()),
            ),
            detail={
                **{f"{name}_bytes_per_s": values for name, values in rates.items()},
                "bandwidth_gain": gain.ratio,
                "bandwidth_gain_interval": gain.interval,
                "published": "HeteroInfer, section 3.3: 40 to 45 GB/s alone, 59.5 GB/s together (1.37)",
            },
        )


def _rates(measured: Measured, point: StreamPoint, unit: str) -> list[float]:
    return [row[f"{point.name}/{unit}"][0] for row in measured.rounds]


def _metric(name: str, values: list[float]) -> Metric:
    return Metric(
        name=f"{name}_bytes_per_s",
        unit="B/s",
        value=statistics.median(values),
        better="higher",
        samples=tuple(values),
    )


KIND = BandwidthKind()
