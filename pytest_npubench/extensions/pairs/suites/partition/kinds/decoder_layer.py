"""A whole decoder layer, attention and feed-forward, as the solver splits it (HeteroInfer, Figs. 13 and 16).

Prefill of the largest graph size and one decode step after as many tokens; outputs are held against one unit's in
float32. The speed-up is over the better unit alone; it is shown and compared with accepted sessions, and has no limit:
two equal units bound by one memory have little to gain in decode.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Axes, Case
from pytest_npubench.extensions.pairs.paired_rounds import all_visits, time_metric
from pytest_npubench.extensions.pairs.suites.partition.experiment import PartitionExperiment, ratio_metric
from pytest_npubench.extensions.pairs.suites.partition.layers import LayerPoint, LayerVisit
from pytest_npubench.extensions.pairs.suites.partition.plan import PartitionPlan
from pytest_npubench.verdict import judge_gates
from pytest_npubench.verdict.result import Judgement


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderLayerDetail:
    """Seconds of one pass, medians over the rounds. speedup: the better unit alone over the solver's splits."""

    tokens: int
    context: int
    decided_s: float
    gpu_s: float
    npu_s: float
    sync_s: float
    speedup: float
    published: str = "HeteroInfer, section 5.6: 2.05, 1.79, 1.20, 1.19 times by technique at 320 tokens"


class DecoderLayerKind(PartitionExperiment):
    name = "decoder_layer"

    def axes(self, plan: PartitionPlan) -> Iterable[Axes]:
        return ((("phase", "prefill"),), (("phase", "decode"),))

    def points(self, case: Case, plan: PartitionPlan) -> tuple[LayerPoint]:
        longest = plan.partition.standard_sizes[-1]
        if case.axis("phase") == "prefill":
            return (LayerPoint(tokens=longest, context=0),)
        return (LayerPoint(tokens=1, context=longest),)

    def judge(self, case: Case, plan: PartitionPlan, measured: Measured) -> Judgement:
        (point,) = self.points(case, plan)
        visits = all_visits(measured, point, LayerVisit)
        decided_s, npu_s = [visit.decided_s for visit in visits], [visit.npu_s for visit in visits]
        gpu_s = [visit.gpu_beside_decided_s for visit in visits]
        single_s = min(gpu_s, npu_s, key=statistics.median)
        speedup = ratio_metric("speedup", single_s, decided_s)
        return Judgement(
            verdict=judge_gates(()),
            what=f"{case.axis('phase')} of a layer: best unit alone / solver's splits",
            metrics=(time_metric("decided_s", decided_s), speedup),
            measured_s=statistics.median(decided_s),
            detail=DecoderLayerDetail(
                tokens=point.tokens,
                context=point.context,
                decided_s=statistics.median(decided_s),
                gpu_s=statistics.median(gpu_s),
                npu_s=statistics.median(npu_s),
                sync_s=statistics.median(visit.decided_sync_s for visit in visits),
                speedup=speedup.value,
            ),
        )


KIND = DecoderLayerKind()
