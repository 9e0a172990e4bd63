"""The same orders while something else takes the units or the memory (asked for by llm.npu's reviewers).

Random stalls of the units, and a process that moves memory all the time. No limit: what is shown is which order loses
how much.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Case
from pytest_npubench.extensions.pairs.offload.factorial import OUT_OF_ORDER
from pytest_npubench.extensions.pairs.offload.replay import HOG, STALLS, ReplayVisit
from pytest_npubench.extensions.pairs.offload.summaries import ReplayRow, contribution_over_fifo, replay_rows
from pytest_npubench.extensions.pairs.suites.offload.plan import OffloadExperiment, OffloadPlan, arm_time, visits_of
from pytest_npubench.verdict import judge_gates
from pytest_npubench.verdict.result import Judgement


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentionDetail:
    """contribution_over_fifo: by what else takes the units or the memory, above 1 where C is the slower."""

    arms: tuple[ReplayRow, ...]
    compared_with: str = "fifo"
    contribution_over_fifo: Mapping[str, float]


class ContentionKind(OffloadExperiment):
    name = "contention"

    def judge(self, case: Case, plan: OffloadPlan, measured: Measured) -> Judgement:
        visits = visits_of(measured, self.points(case, plan), ReplayVisit)
        rows = replay_rows(plan.visits, visits)
        ratios = contribution_over_fifo(rows)
        return Judgement(
            verdict=judge_gates(()),
            what="C / FIFO in time: " + ", ".join(f"{setting} {value:.3f}" for setting, value in ratios.items()),
            metrics=tuple(
                arm_time(f"{setting}_contribution_s", visits, f"replay/{OUT_OF_ORDER}/{setting}")
                for setting in (STALLS, HOG)
            ),
            detail=ContentionDetail(arms=rows, contribution_over_fifo=ratios),
        )


KIND = ContentionKind()
