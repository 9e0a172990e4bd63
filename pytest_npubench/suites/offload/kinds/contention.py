"""The same orders while something else takes the units or the memory (asked for by llm.npu's reviewers).

Random stalls of the units, and a process that moves memory all the time. No limit: what is shown is which order loses
how much.
"""

from __future__ import annotations

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Case
from pytest_npubench.offload.factorial import OUT_OF_ORDER
from pytest_npubench.offload.replay import HOG, STALLS, ReplaySettings
from pytest_npubench.offload.summaries import summarize_replay
from pytest_npubench.suites.offload.experiment import OffloadExperiment, arm_rows, arm_time
from pytest_npubench.suites.offload.plan import OffloadPlan
from pytest_npubench.suites.offload.points import samples_of
from pytest_npubench.verdict import judge_gates
from pytest_npubench.verdict.result import Judgement


class ContentionKind(OffloadExperiment):
    name = "contention"

    def judge(self, case: Case, plan: OffloadPlan, measured: Measured) -> Judgement:
        settings = plan.experiment
        assert isinstance(settings, ReplaySettings)
        samples = samples_of(measured, self.points(case, plan))
        summary = summarize_replay(settings, samples)
        ratios = {setting: ratio.median for setting, ratio in summary.contribution_over_fifo.items()}
        return Judgement(
            verdict=judge_gates(()),
            what="C / FIFO in time: " + ", ".join(f"{setting} {value:.3f}" for setting, value in ratios.items()),
            metrics=tuple(
                arm_time(f"{setting}_contribution_s", samples, f"replay/{OUT_OF_ORDER}/{setting}")
                for setting in (STALLS, HOG)
            ),
            detail={"arms": arm_rows(summary.rows), "compared_with": "fifo", "contribution_over_fifo": ratios},
        )


KIND = ContentionKind()
