"""TTFT_b and TBT_b of a phone's NPU by the two graphs of a bucket, the GPU's and the CPU's beside them.

Figures of a stand-in of the service are shown and never compared or accepted (gate "none").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Case
from pytest_npubench.core.measurement import Phase
from pytest_npubench.errors import MeasurementError
from pytest_npubench.extensions.compilers.suites.graphs.phone_lens import gate_of, graph_times, latest
from pytest_npubench.extensions.compilers.suites.graphs.phone_plan import MAIN_UNIT, PHASES, GraphPoint, PhonePlan
from pytest_npubench.extensions.compilers.suites.programs import BucketCases
from pytest_npubench.suites.buckets.profile_detail import ProfileDetail
from pytest_npubench.verdict import Verdict, VerdictKind
from pytest_npubench.verdict.result import Judgement, Metric

METRICS = {Phase.PREFILL: "ttft", Phase.DECODE: "tbt"}
Times = Mapping[Phase, tuple[float, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphDetail:
    """One graph on one unit: mean seconds, and what the report told of it (GraphVisit of phone_plan.py)."""

    mean_s: float
    layers: Mapping[str, int]
    layer_s: Mapping[str, float]
    first_load: float | None
    warm_load: float | None
    peak_bytes: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphProfileDetail(ProfileDetail):
    """`units`: by unit and phase, the graphs; `failed_units`: why others could not be had."""

    stand_in: bool
    units: Mapping[str, Mapping[str, GraphDetail]]
    failed_units: Mapping[str, str]


class GraphProfileKind(BucketCases):
    name = "profile"
    suite = "graphs"

    def points(self, case: Case, plan: PhonePlan) -> tuple[GraphPoint, ...]:
        return plan.graph_points((int(case.axis("bucket")),))

    def judge(self, case: Case, plan: PhonePlan, measured: Measured) -> Judgement:
        """Invalid where the NPU's jobs failed; another unit's failure is said and leaves the rest as it is."""
        bucket = int(case.axis("bucket"))
        units, failures = _times(bucket, plan, measured)
        ttft_s, tbt_s = (fmean(units[MAIN_UNIT][phase]) for phase in PHASES)
        gate = gate_of(measured, bucket)
        return Judgement(
            verdict=Verdict(kind=VerdictKind.PASSED, reason=_placement(measured, bucket, failures)),
            what=f"TTFT of bucket {bucket} by its graph",
            metrics=tuple(
                Metric(
                    name=METRICS[phase] + ("_s" if unit == MAIN_UNIT else f"_{unit}_s"),
                    unit="s",
                    value=fmean(times[phase]),
                    samples=times[phase],
                    gate=gate,
                )
                for unit, times in units.items()
                for phase in PHASES
            ),
            measured_s=ttft_s,
            detail=GraphProfileDetail(
                bucket=bucket,
                ttft_s=ttft_s,
                tbt_s=tbt_s,
                stand_in=gate == "none",
                units={
                    unit: {phase.value: _graph_detail(measured, phase, bucket, unit) for phase in PHASES}
                    for unit in units
                },
                failed_units=failures,
            ),
        )


def _times(bucket: int, plan: PhonePlan, measured: Measured) -> tuple[dict[str, Times], dict[str, str]]:
    """Times by unit and phase, and why by unit where they could not be had. Raises MeasurementError for the NPU."""
    units: dict[str, Times] = {}
    failures: dict[str, str] = {}
    for unit in plan.units:
        try:
            units[unit] = {phase: graph_times(measured, phase, bucket, unit) for phase in PHASES}
        except MeasurementError as error:
            if unit == MAIN_UNIT:
                raise
            failures[unit] = str(error)
    return units, failures


def _placement(measured: Measured, bucket: int, failures: Mapping[str, str]) -> str:
    parts = []
    for phase in PHASES:
        if layers := latest(measured, phase, bucket, MAIN_UNIT).layers:
            parts.append(f"{phase.value} {layers.get(MAIN_UNIT, 0)} of {sum(layers.values())} layers on the NPU")
    parts.extend(f"{unit} not measured" for unit in failures)
    return "; ".join(["measured", *parts])


def _graph_detail(measured: Measured, phase: Phase, bucket: int, unit: str) -> GraphDetail:
    last = latest(measured, phase, bucket, unit)
    return GraphDetail(
        mean_s=fmean(graph_times(measured, phase, bucket, unit)),
        layers=last.layers,
        layer_s=last.layer_s,
        first_load=last.first_load,
        warm_load=last.warm_load,
        peak_bytes=last.peak_bytes,
    )


KIND = GraphProfileKind()
