"""The graphs of Qualcomm's compiler that a workload's batches touch."""

from __future__ import annotations

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Case
from pytest_npubench.extensions.compilers.compiled.runtime import TITLE
from pytest_npubench.extensions.compilers.suites.graphs.htp_graphs import HtpDetail, split
from pytest_npubench.extensions.compilers.suites.graphs.htp_plan import HtpPlan, HtpPoint, HtpVisit
from pytest_npubench.extensions.compilers.suites.programs import WorkloadCases, failed, last_visit, refused, verdict
from pytest_npubench.verdict.result import Judgement, Metric


class BatchesKind(WorkloadCases):
    name = "batches"
    suite = "graphs"

    def points(self, case: Case, plan: HtpPlan) -> tuple[HtpPoint, ...]:
        return (*plan.layers(plan.touched(str(case.axis("workload")))), plan.head)

    def judge(self, case: Case, plan: HtpPlan, measured: Measured) -> Judgement:
        points = self.points(case, plan)
        if reason := refused(points, measured):
            return failed(reason)
        visits = {point: last_visit(measured, point, HtpVisit) for point in points}
        words = f"{TITLE}: {len(points)} graphs, one layer for all, serve every batch; no phone ran them"
        num_binaries = sum(facts.num_contexts for facts in visits.values())
        return Judgement(
            verdict=verdict(split(visits), [words]),
            what=f"graphs of {case.axis('workload')}",
            metrics=(Metric(name="binaries", unit="", value=num_binaries, gate="exact"),),
            detail=HtpDetail(),
        )


KIND = BatchesKind()
