"""Whether waiting lies on the critical path, in prefill and in decode order (HeteroInfer, section 4.3, Fig. 10).

A chain of dependent operators against the same ones without dependencies. Where the GPU has the longer part (decode),
the NPU's signal is there already; where the NPU has it (prefill), the GPU's next operator waits. Fast synchronisation
gives the paper +24.3 % in prefill and 4.01 times in decode. The case fails where the fast mechanism's chains are slower
than the slow one's.
"""

from __future__ import annotations

import statistics

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Case
from pytest_npubench.suites.partition.experiment import PairExperiment, rounds_of, time_metric
from pytest_npubench.suites.partition.plan import PartitionPlan
from pytest_npubench.suites.partition.points import OverlapPoint
from pytest_npubench.verdict import Gate, judge_gates
from pytest_npubench.verdict.result import Judgement, Metric

DECODE_SHARE, PREFILL_SHARE = 0.75, 0.25  # of the rows, for the GPU


class OverlapKind(PairExperiment):
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
        metrics, gates, detail = [], [], {}
        for phase, point in zip(("decode", "prefill"), self.points(case, plan), strict=True):
            found = {name: rounds_of(measured, point, name) for name in ("fast_s", "slow_s", "queued_s")}
            exposed = {speed: rounds_of(measured, point, f"{speed}_exposed_s") for speed in ("fast", "slow")}
            medians = {name: statistics.median(values) for name, values in found.items()}
            speedup = medians["slow_s"] / medians["fast_s"]
            gates.append(Gate(metric=f"{phase}: fast / slow chain", value=1 / speedup, limit=1.0))
            metrics.append(time_metric(f"{phase}_chain_s", found["fast_s"]))
            metrics.append(
                Metric(name=f"{phase}_fast_speedup", unit="ratio", value=speedup, better="higher", gate="none")
            )
            detail[phase] = {
                **medians,
                **{f"{speed}_exposed_s": statistics.median(values) for speed, values in exposed.items()},
                "num_operators": point.num_operators,
                "operator": [point.matmul.rows, point.matmul.cols, point.matmul.tokens],
                "fast_speedup": speedup,
            }
        return Judgement(
            verdict=judge_gates(tuple(gates)),
            what="chains of dependent operators: slow / fast synchronisation",
            metrics=tuple(metrics),
            detail={**detail, "published": "HeteroInfer, section 5.5: +24.3 % in prefill, 4.01 times in decode"},
        )


KIND = OverlapKind()
