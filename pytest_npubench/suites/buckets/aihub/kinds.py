"""The kinds of bucket cases on graphs. Ids and axes are those of the other devices; what is behind them differs.

profile     TTFT_b and TBT_b of the NPU from its two graphs, the GPU's and the CPU's beside them
steps       the step to the next bucket; inside a bucket every length runs the same graph, so none can be there
prediction  what LENS predicts; nothing runs end to end on AI Hub, so there is nothing to hold it against
mean_error, canary   cannot be measured there

Figures of a stand-in of the service are shown and never compared or accepted (gate "none").
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean
from typing import Any, cast

from pytest_npubench.campaign.kind import CaseKind
from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.protocol import CampaignPlan
from pytest_npubench.core.case import Axes, Case
from pytest_npubench.core.measurement import Phase
from pytest_npubench.engines.aihub.profile import UNITS
from pytest_npubench.errors import MeasurementError
from pytest_npubench.suites.buckets.aihub.plan import PHASES, STAND_IN, GraphPoint, HubPlan
from pytest_npubench.suites.buckets.plan import BucketPlan
from pytest_npubench.verdict import Verdict, VerdictKind
from pytest_npubench.verdict.result import GateKind, Judgement, Metric

MAIN_UNIT = "npu"
NO_RUN = "no end-to-end run on AI Hub"
METRICS = {Phase.PREFILL: "ttft", Phase.DECODE: "tbt"}


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
            detail={
                "bucket": bucket,
                "ttft_s": ttft_s,
                "tbt_s": tbt_s,
                "from": "graphs",
                "stand_in": gate == "none",
                "units": {unit: _unit_detail(measured, bucket, unit) for unit in units},
                "failed_units": failed,
            },
        )

    def _units(
        self, case: Case, plan: HubPlan, measured: Measured
    ) -> tuple[dict[str, dict[Phase, tuple[float, ...]]], dict[str, str]]:
        """Times by unit and phase, and why by unit where they could not be had. Raises MeasurementError for the NPU."""
        from pytest_npubench.suites.buckets.aihub.lens import graph_times

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
        from pytest_npubench.suites.buckets.aihub.lens import graph_times

        edge = _edge(case, plan)
        times = [graph_times(measured, Phase.PREFILL, bucket, MAIN_UNIT) for bucket in edge]
        return Judgement(
            verdict=Verdict(kind=VerdictKind.PASSED, reason=_step_reason(edge, times)),
            what=f"prefill graph of {edge[0]} tokens",
            metrics=(_metric("prefill_s", times[0], _gate(measured, edge[0])),),
            measured_s=fmean(times[0]),
            detail={
                "bucket": edge[0],
                "lengths_s": {str(bucket): fmean(found) for bucket, found in zip(edge, times, strict=True)},
                "from": "graphs",
            },
        )


class GraphPredictionKind(GraphKind):
    def points(self, case: Case, plan: HubPlan) -> tuple[GraphPoint, ...]:
        """Those of the NPU that the workload's batches touch."""
        batches = plan.draws(str(case.axis("workload")))
        return plan.graph_points(plan.touched(batches), (MAIN_UNIT,))

    def judge(self, case: Case, plan: HubPlan, measured: Measured) -> Judgement:
        from pytest_npubench.suites.buckets.aihub.lens import bucket_profile, predict_batch

        workload = str(case.axis("workload"))
        batches = plan.draws(workload)
        profile = bucket_profile(plan, measured, plan.touched(batches), MAIN_UNIT)
        predicted = [predict_batch(profile, batch) for batch in batches]
        return Judgement(
            verdict=Verdict(kind=VerdictKind.INCONCLUSIVE, reason=f"{NO_RUN}: predicted, not held against anything"),
            what=f"E2E of {workload}, predicted from graphs",
            predicted_s=sum(predicted),
            detail={
                "workload": workload,
                "predicted_s": predicted,
                "from": "graphs",
                **({"predictors": {name: {"reason": NO_RUN} for name in plan.rivals}} if plan.rivals else {}),
            },
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
    name = GraphPoint(phase=Phase.PREFILL, bucket=bucket, unit=MAIN_UNIT).name
    return "none" if _one(measured, f"{name}/{STAND_IN}") else "ratio"


def _one(measured: Measured, name: str) -> float | None:
    """The latest value of a series that holds one a round; None where the report did not tell it."""
    values = [row[name][-1] for row in measured.rounds if row.get(name)]
    return values[-1] if values else None


def _layers(measured: Measured, phase: Phase, bucket: int, unit: str) -> dict[str, int]:
    """How many layers ran on each unit, of a graph that was asked to run on `unit`; empty where it is not known."""
    name = GraphPoint(phase=phase, bucket=bucket, unit=unit).name
    counts = {other: _one(measured, f"{name}/layers/{other}") for other in UNITS}
    return {other: int(count) for other, count in counts.items() if count is not None}


def _placement(measured: Measured, bucket: int, failed: dict[str, str]) -> str:
    parts = []
    for phase in PHASES:
        layers = _layers(measured, phase, bucket, MAIN_UNIT)
        if layers:
            parts.append(f"{phase.value} {layers.get(MAIN_UNIT, 0)} of {sum(layers.values())} layers on the NPU")
    parts.extend(f"{unit} not measured" for unit in failed)
    return "; ".join(["measured", *parts])


def _unit_detail(measured: Measured, bucket: int, unit: str) -> dict[str, object]:
    from pytest_npubench.suites.buckets.aihub.lens import graph_times

    detail: dict[str, object] = {}
    for phase in PHASES:
        name = GraphPoint(phase=phase, bucket=bucket, unit=unit).name
        known = {key: _one(measured, f"{name}/{key}") for key in ("first_load", "warm_load", "peak_bytes")}
        detail[phase.value] = {
            "mean_s": fmean(graph_times(measured, phase, bucket, unit)),
            "layers": _layers(measured, phase, bucket, unit),
            "layer_s": {
                other: value for other in UNITS if (value := _one(measured, f"{name}/layer_s/{other}")) is not None
            },
            **{key: value for key, value in known.items() if value is not None},
        }
    return detail


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
