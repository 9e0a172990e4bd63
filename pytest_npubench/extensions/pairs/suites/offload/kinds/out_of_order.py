"""Out-of-order subgraphs alone: orders simulated at 2, 4 and 8 chunks, and replayed on the pair (llm.npu, section 3.4).

C / FIFO is given with its sign: most of the gain over program order comes from any ready queue. The case fails where
the order changes what is computed.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Case
from pytest_npubench.extensions.pairs.offload.factorial import OUT_OF_ORDER
from pytest_npubench.extensions.pairs.offload.out_of_order import OrderOutcome, simulated_bubbles
from pytest_npubench.extensions.pairs.offload.replay import CALM, ReplaySettings, ReplayVisit
from pytest_npubench.extensions.pairs.offload.summaries import ReplayRow, contribution_over_fifo, replay_rows
from pytest_npubench.extensions.pairs.offload.units import OffloadPoint
from pytest_npubench.extensions.pairs.suites.offload.plan import OffloadExperiment, OffloadPlan, arm_time, visits_of
from pytest_npubench.verdict import Gate, judge_gates
from pytest_npubench.verdict.result import Judgement, Metric

MAX_DIFFERENCE = 1e-6  # between orders, of the relative error


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfOrderDetail:
    """arms: replayed on the pair; simulated: by order and number of chunks."""

    arms: tuple[ReplayRow, ...]
    compared_with: str = "fifo"
    simulated: tuple[OrderOutcome, ...]


class OutOfOrderKind(OffloadExperiment):
    name = "out_of_order"

    def points(self, case: Case, plan: OffloadPlan) -> tuple[OffloadPoint, ...]:
        return tuple(point for point in super().points(case, plan) if point.setting == CALM)

    def judge(self, case: Case, plan: OffloadPlan, measured: Measured) -> Judgement:
        settings = plan.experiment
        assert isinstance(settings, ReplaySettings)
        points = self.points(case, plan)
        visits = visits_of(measured, points, ReplayVisit)
        rows = replay_rows(points, visits)
        over_fifo = contribution_over_fifo(rows)[CALM]
        errors = [row.relative_error for row in rows]
        return Judgement(
            verdict=judge_gates(
                (Gate(metric="errors of two orders apart", value=max(errors) - min(errors), limit=MAX_DIFFERENCE),)
            ),
            what=f"C / FIFO in time, {settings.num_chunks} chunks on the pair: {over_fifo:.3f}",
            metrics=(
                arm_time("contribution_s", visits, f"replay/{OUT_OF_ORDER}/{CALM}"),
                Metric(name="contribution_over_fifo", unit="ratio", value=over_fifo, gate="none"),
            ),
            detail=OutOfOrderDetail(arms=rows, simulated=simulated_bubbles()),
        )


KIND = OutOfOrderKind()
