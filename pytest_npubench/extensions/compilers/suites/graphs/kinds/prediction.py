"""What LENS predicts of a workload's batches from a phone's graphs. Nothing runs end to end on AI Hub, so there is
nothing to hold it against."""

from __future__ import annotations

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Case
from pytest_npubench.extensions.compilers.suites.graphs.phone_lens import bucket_profile, predict_batch
from pytest_npubench.extensions.compilers.suites.graphs.phone_plan import MAIN_UNIT, GraphPoint, PhonePlan
from pytest_npubench.extensions.compilers.suites.programs import WorkloadCases
from pytest_npubench.suites.buckets.kinds.prediction import PredictionDetail
from pytest_npubench.verdict import Verdict, VerdictKind
from pytest_npubench.verdict.result import Judgement

NO_RUN = "no end-to-end run on AI Hub"


class GraphPredictionKind(WorkloadCases):
    name = "prediction"
    suite = "graphs"

    def points(self, case: Case, plan: PhonePlan) -> tuple[GraphPoint, ...]:
        """Returns the graphs on the NPU that the workload's batches touch."""
        return plan.graph_points(plan.touched(str(case.axis("workload"))), (MAIN_UNIT,))

    def judge(self, case: Case, plan: PhonePlan, measured: Measured) -> Judgement:
        workload = str(case.axis("workload"))
        profile = bucket_profile(plan, measured, plan.touched(workload), MAIN_UNIT)
        predicted_s = tuple(predict_batch(profile, batch) for batch in plan.batches(workload))
        return Judgement(
            verdict=Verdict(kind=VerdictKind.INCONCLUSIVE, reason=f"{NO_RUN}: predicted, not held against anything"),
            what=f"E2E of {workload}, predicted from graphs",
            predicted_s=sum(predicted_s),
            detail=PredictionDetail(workload=workload, predicted_s=predicted_s),
        )


KIND = GraphPredictionKind()
