"""Memory bandwidth of one unit and of both at once (HeteroInfer, section 3.3, Memory-1).

One unit alone draws 40 to 45 of the paper's 68 GB/s, both together 59.5: decode, which is bound by memory, gains from
two units what neither has alone. The gain is both together over the better one alone.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Case
from pytest_npubench.extensions.pairs.paired_rounds import all_visits, whole_rounds
from pytest_npubench.extensions.pairs.partition.descriptors import fit_bandwidth_gain
from pytest_npubench.extensions.pairs.partition.matmul import GPU, NPU
from pytest_npubench.extensions.pairs.suites.partition.experiment import PartitionExperiment
from pytest_npubench.extensions.pairs.suites.partition.plan import PartitionPlan
from pytest_npubench.extensions.pairs.suites.partition.points import StreamPoint, StreamVisit
from pytest_npubench.verdict import judge_gates
from pytest_npubench.verdict.result import Judgement, Metric

NUM_BYTES = 256 * 2**20  # larger than any cache


@dataclass(frozen=True, slots=True, kw_only=True)
class BandwidthDetail:
    """Rates are one value a round. bandwidth_gain: both together over the better one alone; its interval is None below
    6 rounds."""

    gpu_alone_bytes_per_s: tuple[float, ...]
    npu_alone_bytes_per_s: tuple[float, ...]
    together_bytes_per_s: tuple[float, ...]
    bandwidth_gain: float
    bandwidth_gain_interval: tuple[float, float] | None


class BandwidthKind(PartitionExperiment):
    name = "bandwidth"

    def points(self, case: Case, plan: PartitionPlan) -> tuple[StreamPoint, ...]:
        return tuple(StreamPoint(units=units, num_bytes=NUM_BYTES) for units in ((GPU,), (NPU,), (GPU, NPU)))

    def judge(self, case: Case, plan: PartitionPlan, measured: Measured) -> Judgement:
        points = gpu, npu, both = self.points(case, plan)
        measured = whole_rounds(measured, points)
        alone = {GPU: _rates(measured, gpu)[GPU], NPU: _rates(measured, npu)[NPU]}
        beside = _rates(measured, both)
        together = tuple(map(sum, zip(*beside.values(), strict=True)))
        gain = fit_bandwidth_gain(alone, beside)
        return Judgement(
            verdict=judge_gates(()),
            what="memory bandwidth of both units / of the better one",
            metrics=(
                Metric(name="bandwidth_gain", unit="ratio", value=gain.ratio, better="higher", gate="none"),
                _metric("gpu_alone_bytes_per_s", alone[GPU]),
                _metric("npu_alone_bytes_per_s", alone[NPU]),
                _metric("together_bytes_per_s", together),
            ),
            detail=BandwidthDetail(
                gpu_alone_bytes_per_s=alone[GPU],
                npu_alone_bytes_per_s=alone[NPU],
                together_bytes_per_s=together,
                bandwidth_gain=gain.ratio,
                bandwidth_gain_interval=gain.interval,
            ),
        )


def _rates(measured: Measured, point: StreamPoint) -> dict[str, tuple[float, ...]]:
    """Returns the rates by unit, one value a round."""
    visits = all_visits(measured, point, StreamVisit)
    rates = {GPU: [visit.gpu for visit in visits], NPU: [visit.npu for visit in visits]}
    return {unit: tuple(rate for rate in own if rate is not None) for unit, own in rates.items()}


def _metric(name: str, values: tuple[float, ...]) -> Metric:
    return Metric(name=name, unit="B/s", value=statistics.median(values), better="higher", samples=values)


KIND = BandwidthKind()
