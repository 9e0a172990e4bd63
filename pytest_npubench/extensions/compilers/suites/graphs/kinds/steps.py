"""The step from a bucket's prefill graph to the next one's on a phone's NPU.

Inside a bucket every length runs the same graph, so none can be there.
"""

from __future__ import annotations

from statistics import fmean

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Case
from pytest_npubench.core.measurement import Phase
from pytest_npubench.extensions.compilers.suites.graphs.phone_lens import gate_of, graph_times
from pytest_npubench.extensions.compilers.suites.graphs.phone_plan import MAIN_UNIT, GraphPoint, PhonePlan
from pytest_npubench.extensions.compilers.suites.programs import BucketCases
from pytest_npubench.suites.buckets.kinds.steps import Jump, StepsDetail, jump
from pytest_npubench.verdict import Verdict, VerdictKind
from pytest_npubench.verdict.result import Judgement, Metric


class GraphStepsKind(BucketCases):
    name = "steps"
    suite = "graphs"

    def points(self, case: Case, plan: PhonePlan) -> tuple[GraphPoint, ...]:
        return tuple(GraphPoint(phase=Phase.PREFILL, bucket=bucket, unit=MAIN_UNIT) for bucket in plan.edge(case))

    def judge(self, case: Case, plan: PhonePlan, measured: Measured) -> Judgement:
        edge = plan.edge(case)
        times_s = [graph_times(measured, Phase.PREFILL, bucket, MAIN_UNIT) for bucket in edge]
        mean_s = fmean(times_s[0])
        gate = gate_of(measured, edge[0])
        return Judgement(
            verdict=Verdict(kind=VerdictKind.PASSED, reason=_reason(edge, times_s)),
            what=f"prefill graph of {edge[0]} tokens",
            metrics=(Metric(name="prefill_s", unit="s", value=mean_s, samples=times_s[0], gate=gate),),
            measured_s=mean_s,
            detail=StepsDetail(
                bucket=edge[0],
                lengths_s={str(bucket): fmean(samples_s) for bucket, samples_s in zip(edge, times_s, strict=True)},
            ),
        )


def _reason(edge: tuple[int, ...], times_s: list[tuple[float, ...]]) -> str:
    flat = f"one graph for every length of bucket {edge[0]}"
    if len(edge) == 1:
        return f"{flat}, the largest"
    observed, ratio = jump(times_s[0], times_s[1])
    note = "" if observed is not Jump.UNCLEAR else " by these samples"
    return f"{flat}; jump to the next bucket {observed.value}{note}: x{ratio:.2f}"


KIND = GraphStepsKind()
