"""The three techniques on and off, all eight ways, on one prefill: main effects and interactions (its reviews' demand).

Effects are ratios: below 1 the technique improves time, error or bytes. The case fails where the shadow is proven to
make the error larger, since then the pipeline computes something else.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Case
from pytest_npubench.extensions.pairs.offload.effects import CellRow
from pytest_npubench.extensions.pairs.offload.factorial import CELLS, FACTORS, FactorialVisit, cell_name
from pytest_npubench.extensions.pairs.offload.summaries import FactorialEffects, summarize_factorial
from pytest_npubench.extensions.pairs.suites.offload.plan import OffloadExperiment, OffloadPlan, arm_time, visits_of
from pytest_npubench.verdict import Gate, judge_gates
from pytest_npubench.verdict.result import Judgement, Metric

MARGIN = 0.05  # of effects: a session has each once


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorialDetail:
    cells: tuple[CellRow, ...]
    effects: FactorialEffects


class FactorialKind(OffloadExperiment):
    name = "factorial"

    def judge(self, case: Case, plan: OffloadPlan, measured: Measured) -> Judgement:
        visits = visits_of(measured, self.points(case, plan), FactorialVisit)
        cells, effects = summarize_factorial(visits)
        shadow = next(effect for effect in effects.error if effect.factors == ("shadow",))
        time = {effect.name: effect.ratio for effect in effects.time if len(effect.factors) == 1}
        least = shadow.low if shadow.low is not None else shadow.ratio
        return Judgement(
            verdict=judge_gates(
                (Gate(metric="error with the shadow / without, at the least", value=least, limit=1.0),)
            ),
            what="time with / without: " + ", ".join(f"{name} {ratio:.2f}" for name, ratio in time.items()),
            metrics=(
                arm_time("all_on_s", visits, f"factorial/{cell_name(CELLS[-1])}/prefill"),
                *(Metric(name=f"{name}_time_ratio", unit="ratio", value=time[name], margin=MARGIN) for name in FACTORS),
                Metric(name="shadow_error_ratio", unit="ratio", value=shadow.ratio, margin=MARGIN),
            ),
            detail=FactorialDetail(cells=cells, effects=effects),
        )


KIND = FactorialKind()
