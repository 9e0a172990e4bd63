"""Shadow outliers alone: error and time of seven ways to multiply in INT8 (llm.npu, section 3.3).

The case fails where the shadow's error at FEW outlier channels is not at least ten times below that of per-tensor
max-min scales. Numerical errors of made-up tensors, no model's accuracy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Case
from pytest_npubench.extensions.pairs.offload.shadow import ShadowSettings, ShadowVisit, setting_name
from pytest_npubench.extensions.pairs.offload.summaries import ShadowRow, summarize_shadow
from pytest_npubench.extensions.pairs.suites.offload.plan import OffloadExperiment, OffloadPlan, arm_time, visits_of
from pytest_npubench.verdict import Gate, judge_gates
from pytest_npubench.verdict.result import Judgement, Metric

FEW = 8
LARGEST_SHARE = 0.1
GAIN_MARGIN = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowOutlierDetail:
    """crossover_fraction: as of ShadowSummary. error_gain: by number of outlier channels, the max_min error over the
    shadow's."""

    arms: tuple[ShadowRow, ...]
    compared_with: str = "fp32"
    crossover_fraction: float | None
    error_gain: Mapping[str, float]


class ShadowOutlierKind(OffloadExperiment):
    name = "shadow_outlier"

    def judge(self, case: Case, plan: OffloadPlan, measured: Measured) -> Judgement:
        settings = plan.experiment
        assert isinstance(settings, ShadowSettings)
        visits = visits_of(measured, self.points(case, plan), ShadowVisit)
        summary = summarize_shadow(settings, visits)
        gain = summary.error_gain[FEW]
        rows = {(row.arm, row.setting): row for row in summary.rows}
        fast, slow = (rows[arm, setting_name(FEW)] for arm in ("parallel_fast", "parallel_slow"))
        return Judgement(
            verdict=judge_gates(
                (Gate(metric="error, shadow / per-tensor max-min", value=1 / gain, limit=LARGEST_SHARE),)
            ),
            what=f"{FEW} outlier channels: the shadow's error is {gain:.0f} times smaller",
            metrics=(
                arm_time("parallel_fast_s", visits, f"shadow/parallel_fast/{setting_name(FEW)}"),
                Metric(name="error_gain", unit="ratio", value=gain, better="higher", margin=GAIN_MARGIN),
                Metric(name="sync_fraction", unit="", value=fast.sync_fraction, gate="none"),
                Metric(name="slow_sync_fraction", unit="", value=slow.sync_fraction, gate="none"),
            ),
            detail=ShadowOutlierDetail(
                arms=summary.rows,
                crossover_fraction=summary.crossover_fraction,
                error_gain={str(count): value for count, value in summary.error_gain.items()},
            ),
        )


KIND = ShadowOutlierKind()
