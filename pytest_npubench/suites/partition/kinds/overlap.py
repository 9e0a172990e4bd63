"""Whether waiting lies on the critical path, in prefill and in decode order (HeteroInfer, section 4.3, Fig. 10).

A chain of dependent operators against the same ones without dependencies. Where the GPU has the longer part (decode),
the NPU's signal is there already; where the NPU has it (prefill), the GPU's next operator waits. Fast synchronisation
gives the paper +24.3 % in prefill and 4.01 times in decode. The case fails where the fast mechanism's chains are slower
than the slow one's.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from pytest_npubench.campaign.paired_rounds import time_metric
from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Case
from pytest_npubench.suites.partition.experiment import PartitionExperiment, rounds_of
from pytest_npubench.suites.partition.plan import PartitionPlan
from pytest_npubench.suites.partition.points import OverlapPoint, OverlapVisit
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
    published: str = "HeteroInfer, section 5.5: +24.3 % in prefill, 4.01 times in decode"


class OverlapKind(PartitionExperiment):
    name = "overlap"

    def points(self, case: Case, plan: PartitionPlan) -> tuple[OverlapPoint, OverlapPoint]:
        """The smallest operator: there waiting weighs most."""
        smallest = min(plan.operator_names, key=lambda name: plan.matmul(name, 1).weight_elements)
        prefill = plan.matmul(smallest, plan.partition.standard_sizes[0])
        return (
            OverlapPoint(matmul=plan.matmul(smallest, 1), gpu_share=DECODE_SHARE),
            OverlapPoint(matmul=prefill, gpu_share=PREFILL_SHARE),
        )

    def judge(self, case: Case, plan: PartitionPlan, measured: Measured) -> Judgement:
        decode, prefill = (_phase(measured, point) for point in self.points(case, plan))
        return Judgement(
            verdict=judge_gates((_gate("decode", decode), _gate("prefill", prefill))),
            what="chains of dependent operators: slow / fast synchronisation",
            metrics=(*_metrics("decode", decode), *_metrics("prefill", prefill)),
            detail=OverlapDetail(decode=decode.detail, prefill=prefill.detail),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Phase:
    """fast_s: by round."""

    fast_s: tuple[float, ...]
    detail: PhaseDetail


def _phase(measured: Measured, point: OverlapPoint) -> _Phase:
    def seconds(figure: Callable[[OverlapVisit], float]) -> tuple[float, ...]:
        return rounds_of(measured, point, OverlapVisit, figure)

    fast_s = seconds(lambda visit: visit.fast_s)
    slow_s = statistics.median(seconds(lambda visit: visit.slow_s))
    detail = PhaseDetail(
        fast_s=statistics.median(fast_s),
        slow_s=slow_s,
        queued_s=statistics.median(seconds(lambda visit: visit.queued_s)),
        fast_exposed_s=statistics.median(seconds(lambda visit: visit.fast_exposed_s)),
        slow_exposed_s=statistics.median(seconds(lambda visit: visit.slow_exposed_s)),
        num_operators=point.num_operators,
        operator=(point.matmul.rows, point.matmul.cols, point.matmul.tokens),
        fast_speedup=slow_s / statistics.median(fast_s),
    )
    return _Phase(fast_s=fast_s, detail=detail)


def _gate(name: str, phase: _Phase) -> Gate:
    return Gate(metric=f"{name}: fast / slow chain", value=1 / phase.detail.fast_speedup, limit=1.0)


def _metrics(name: str, phase: _Phase) -> tuple[Metric, Metric]:
    speedup = phase.detail.fast_speedup
    return (
        time_metric(f"{name}_chain_s", phase.fast_s),
        Metric(name=f"{name}_fast_speedup", unit="ratio", value=speedup, better="higher", gate="none"),
    )


KIND = OverlapKind()
