"""Whether waiting lies on the critical path, in prefill and in decode order (HeteroInfer, section 4.3, Fig. 10).

A chain of dependent operators against the same ones without dependencies. Where the GPU has the longer part (decode),
the NPU's signal is there already; where the NPU has it (prefill), the GPU's next operator waits. Fast synchronisation
gives the paper +24.3 % in prefill and 4.01 times in decode. The case fails where the fast mechanism's chains are slower
than the slow one's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Case
from pytest_npubench.extensions.pairs.paired_rounds import all_visits, time_metric
from pytest_npubench.extensions.pairs.suites.partition.experiment import PartitionExperiment, unit_metrics
from pytest_npubench.extensions.pairs.suites.partition.plan import PartitionPlan
from pytest_npubench.extensions.pairs.suites.partition.points import OverlapPoint, OverlapVisit
from pytest_npubench.verdict import Gate, judge_gates
from pytest_npubench.verdict.result import Judgement, Metric

DECODE_SHARE, PREFILL_SHARE = 0.75, 0.25  # of the rows, for the GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseDetail:
    """Seconds of the chains of one phase, medians over the rounds. operator: rows, columns, tokens."""

    fast_s: float
    slow_s: float
    queued_s: float
    fast_exposed_s: float
    slow_exposed_s: float
    num_operators: int
    operator: tuple[int, int, int]
    fast_speedup: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapDetail:
    decode: PhaseDetail
    prefill: PhaseDetail


class OverlapKind(PartitionExperiment):
    name = "overlap"

    def points(self, case: Case, plan: PartitionPlan) -> tuple[OverlapPoint, OverlapPoint]:
        """Returns the smallest operator: there waiting weighs most."""
        smallest = min(plan.operator_names, key=lambda name: plan.matmul(name, 1).weight_elements)
        prefill = plan.matmul(smallest, plan.partition.standard_sizes[0])
        return (
            OverlapPoint(matmul=plan.matmul(smallest, 1), gpu_share=DECODE_SHARE),
            OverlapPoint(matmul=prefill, gpu_share=PREFILL_SHARE),
        )

    def judge(self, case: Case, plan: PartitionPlan, measured: Measured) -> Judgement:
        gates, phases = [], {}
        metrics: list[Metric] = []
        for phase, point in zip(("decode", "prefill"), self.points(case, plan), strict=True):
            visits = all_visits(measured, point, OverlapVisit)
            detail = phases[phase] = _phase(point, visits)
            speedup = detail.fast_speedup
            gates.append(Gate(metric=f"{phase}: fast / slow chain", value=1 / speedup, limit=1.0))
            units_s = [visit.gpu_s for visit in visits], [visit.npu_s for visit in visits]
            metrics += unit_metrics(*units_s, prefix=f"{phase}_", work="parts")
            metrics.append(time_metric(f"{phase}_chain_s", [visit.fast_s for visit in visits]))
            metrics.append(time_metric(f"{phase}_slow_chain_s", [visit.slow_s for visit in visits]))
            metrics.append(
                Metric(name=f"{phase}_fast_speedup", unit="ratio", value=speedup, better="higher", gate="none")
            )
        return Judgement(
            verdict=judge_gates(tuple(gates)),
            what="chains of dependent operators: slow / fast synchronisation",
            metrics=tuple(metrics),
            detail=OverlapDetail(decode=phases["decode"], prefill=phases["prefill"]),
        )


def _phase(point: OverlapPoint, visits: Sequence[OverlapVisit]) -> PhaseDetail:
    fast_s, slow_s = median(visit.fast_s for visit in visits), median(visit.slow_s for visit in visits)
    return PhaseDetail(
        fast_s=fast_s,
        slow_s=slow_s,
        queued_s=median(visit.queued_s for visit in visits),
        fast_exposed_s=median(visit.fast_exposed_s for visit in visits),
        slow_exposed_s=median(visit.slow_exposed_s for visit in visits),
        num_operators=point.num_operators,
        operator=(point.matmul.rows, point.matmul.cols, point.matmul.tokens),
        fast_speedup=slow_s / fast_s,
    )


KIND = OverlapKind()
