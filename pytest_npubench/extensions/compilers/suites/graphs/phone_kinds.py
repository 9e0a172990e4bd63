"""The kinds of bucket cases on graphs. Ids and axes are those of the other devices; what is behind them differs.

profile     TTFT_b and TBT_b of the NPU from its two graphs, the GPU's and the CPU's beside them
steps       the step to the next bucket; inside a bucket every length runs the same graph, so none can be there
prediction  what LENS predicts; nothing runs end to end on AI Hub, so there is nothing to hold it against
mean_error, canary   cannot be measured there

Figures of a stand-in of the service are shown and never compared or accepted (gate "none").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any, cast

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.protocol import CampaignPlan, CaseKind
from pytest_npubench.core.case import Axes, Case
from pytest_npubench.core.measurement import Phase
from pytest_npubench.errors import MeasurementError
from pytest_npubench.extensions.compilers.suites.graphs.phone_lens import graph_times
from pytest_npubench.extensions.compilers.suites.graphs.phone_plan import PHASES, GraphPoint, GraphVisit, HubPlan
from pytest_npubench.suites.buckets.kinds.prediction import PredictionDetail, RivalDetail
from pytest_npubench.suites.buckets.kinds.profile import ProfileDetail
from pytest_npubench.suites.buckets.kinds.steps import StepsDetail
from pytest_npubench.suites.buckets.plan import BucketPlan
from pytest_npubench.verdict import Verdict, VerdictKind
from pytest_npubench.verdict.result import GateKind, Judgement, Metric

MAIN_UNIT = "npu"
NO_RUN = "no end-to-end run on AI Hub"
METRICS = {Phase.PREFILL: "ttft", Phase.DECODE: "tbt"}


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphDetail:
    """One graph on one unit: mean seconds, and what the report told of it (GraphVisit)."""

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


class GraphKind:
    """What the kinds have in common: the axes of the kind whose place they take."""

    suite = "buckets"

    def __init__(self, kind: CaseKind[Any]) -> None:
        self.name = kind.name
        self._kind = kind

    def axes(self, plan: HubPlan) -> Iterable[Axes]:
        return self._kind.axes(plan)

    def settled(self, case: Case, plan: HubPlan, measured: Measured) -> bool:
        return True


class GraphProfileKind(GraphKind):
    def points(self, case: Case, plan: HubPlan) -> tuple[GraphPoint, ...]:
        return plan.graph_points((int(case.axis("bucket")),))

    def judge(self, case: Case, plan: HubPlan, measured: Measured) -> Judgement:
        """Invalid where the NPU's jobs failed; another unit's failure is said and leaves the rest as it is."""
        bucket = int(case.axis("bucket"))
        units, failed = self._units(case, plan, measured)
        main = units[MAIN_UNIT]
        ttft_s, tbt_s = (fmean(main[phase]) for phase in PHASES)
        gate = _gate(measured, bucket)
        return Judgement(
            verdict=Verdict(kind=VerdictKind.PASSED, reason=_placement(measured, bucket, failed)),
            what=f"TTFT of bucket {bucket} by its graph",
            metrics=tuple(
                _metric(METRICS[phase] + ("_s" if unit == MAIN_UNIT else f"_{unit}_s"), times[phase], gate)
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
                failed_units=failed,
            ),
        )

    def _units(
        self, case: Case, plan: HubPlan, measured: Measured
    ) -> tuple[dict[str, dict[Phase, tuple[float, ...]]], dict[str, str]]:
        """Times by unit and phase, and why by unit where they could not be had. Raises MeasurementError for the NPU."""
        from pytest_npubench.extensions.compilers.suites.graphs.phone_lens import graph_times

        bucket, found, failed = int(case.axis("bucket")), {}, {}
        for unit in plan.units:
            try:
                found[unit] = {phase: graph_times(measured, phase, bucket, unit) for phase in PHASES}
            except MeasurementError as error:
                if unit == MAIN_UNIT:
                    raise
                failed[unit] = str(error)
        return found, failed


class GraphStepsKind(GraphKind):
    def points(self, case: Case, plan: HubPlan) -> tuple[GraphPoint, ...]:
        return tuple(GraphPoint(phase=Phase.PREFILL, bucket=bucket, unit=MAIN_UNIT) for bucket in _edge(case, plan))

    def judge(self, case: Case, plan: HubPlan, measured: Measured) -> Judgement:
        from pytest_npubench.extensions.compilers.suites.graphs.phone_lens import graph_times

        edge = _edge(case, plan)
        times = [graph_times(measured, Phase.PREFILL, bucket, MAIN_UNIT) for bucket in edge]
        return Judgement(
            verdict=Verdict(kind=VerdictKind.PASSED, reason=_step_reason(edge, times)),
            what=f"prefill graph of {edge[0]} tokens",
            metrics=(_metric("prefill_s", times[0], _gate(measured, edge[0])),),
            measured_s=fmean(times[0]),
            detail=StepsDetail(
                bucket=edge[0],
                lengths_s={str(bucket): fmean(found) for bucket, found in zip(edge, times, strict=True)},
            ),
        )


class GraphPredictionKind(GraphKind):
    def points(self, case: Case, plan: HubPlan) -> tuple[GraphPoint, ...]:
        """Those of the NPU that the workload's batches touch."""
        batches = plan.draws(str(case.axis("workload")))
        return plan.graph_points(plan.touched(batches), (MAIN_UNIT,))

    def judge(self, case: Case, plan: HubPlan, measured: Measured) -> Judgement:
        from pytest_npubench.extensions.compilers.suites.graphs.phone_lens import bucket_profile, predict_batch

        workload = str(case.axis("workload"))
        batches = plan.draws(workload)
        profile = bucket_profile(plan, measured, plan.touched(batches), MAIN_UNIT)
        predicted = [predict_batch(profile, batch) for batch in batches]
        return Judgement(
            verdict=Verdict(kind=VerdictKind.INCONCLUSIVE, reason=f"{NO_RUN}: predicted, not held against anything"),
            what=f"E2E of {workload}, predicted from graphs",
            predicted_s=sum(predicted),
            detail=PredictionDetail(
                workload=workload,
                predicted_s=tuple(predicted),
                predictors={name: RivalDetail(reason=NO_RUN) for name in plan.rivals},
            ),
        )


class UnmeasuredKind(GraphKind):
    def points(self, case: Case, plan: HubPlan) -> tuple[GraphPoint, ...]:
        return ()

    def judge(self, case: Case, plan: HubPlan, measured: Measured) -> Judgement:
        return Judgement(
            verdict=Verdict(kind=VerdictKind.INCONCLUSIVE, reason=f"{NO_RUN}: {self.name} has nothing to measure")
        )


KINDS = {"profile": GraphProfileKind, "steps": GraphStepsKind, "prediction": GraphPredictionKind}


def kind_for(plan: CampaignPlan, kind: CaseKind[Any]) -> CaseKind[Any]:
    """The kind that stands in `kind`'s place where a plan rests on graphs; `kind` itself elsewhere."""
    if not isinstance(plan, HubPlan):
        return kind
    return cast(CaseKind[Any], KINDS.get(kind.name, UnmeasuredKind)(kind))


def _metric(name: str, times_s: tuple[float, ...], gate: GateKind) -> Metric:
    return Metric(name=name, unit="s", value=fmean(times_s), samples=times_s, gate=gate)


def _gate(measured: Measured, bucket: int) -> GateKind:
    return "none" if _last(measured, Phase.PREFILL, bucket, MAIN_UNIT).stand_in else "ratio"


def _last(measured: Measured, phase: Phase, bucket: int, unit: str) -> GraphVisit:
    """The latest visit of a graph."""
    return measured.visits(GraphPoint(phase=phase, bucket=bucket, unit=unit).name, GraphVisit)[-1][-1]


def _placement(measured: Measured, bucket: int, failed: Mapping[str, str]) -> str:
    parts = []
    for phase in PHASES:
        if layers := _last(measured, phase, bucket, MAIN_UNIT).layers:
            parts.append(f"{phase.value} {layers.get(MAIN_UNIT, 0)} of {sum(layers.values())} layers on the NPU")
    parts.extend(f"{unit} not measured" for unit in failed)
    return "; ".join(["measured", *parts])


def _graph_detail(measured: Measured, phase: Phase, bucket: int, unit: str) -> GraphDetail:
    last = _last(measured, phase, bucket, unit)
    return GraphDetail(
        mean_s=fmean(graph_times(measured, phase, bucket, unit)),
        layers=last.layers,
        layer_s=last.layer_s,
        first_load=last.first_load,
        warm_load=last.warm_load,
        peak_bytes=last.peak_bytes,
    )


def _edge(case: Case, plan: BucketPlan) -> tuple[int, ...]:
    """The case's bucket and the next larger one, where there is one."""
    index = plan.buckets.index(int(case.axis("bucket")))
    return plan.buckets[index : index + 2]


def _step_reason(edge: tuple[int, ...], times: list[tuple[float, ...]]) -> str:
    flat = f"one graph for every length of bucket {edge[0]}"
    if len(edge) == 1:
        return f"{flat}, the largest"
    from pytest_npubench.suites.buckets.kinds.steps import Jump, jump

    found, ratio = jump(times[0], times[1])
    note = "" if found is not Jump.UNCLEAR else " by these samples"
    return f"{flat}; jump to the next bucket {found.value}{note}: x{ratio:.2f}"
