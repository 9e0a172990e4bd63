"""Does a step cost that was calibrated before still hold, after a driver or a compiler upgrade say? Two requests tell.

One has a long prompt, whose TTFT is the products' and whose TPOT has the keys and values in it; the other a short one
and many tokens, whose TPOT is the weights and the fixed part. Each runs alone, once a round. The hardware file's
[serving.step_costs] names what `npubench calibrate` wrote; a model without an entry has no such case. The case fails
where a mean is outside the band that the cost gave it: calibrate anew, or find what changed. All three figures are to
be held in nine of ten runs in which nothing changed, so each has a band of 96.7 % (Bonferroni).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Axes, Case
from pytest_npubench.errors import ConfigError
from pytest_npubench.stats.error import repeat_error
from pytest_npubench.suites.protocol import ShownKind
from pytest_npubench.suites.scheduling.experiment import LoadExperiment, ServingDetail
from pytest_npubench.suites.scheduling.plan import ServingPlan
from pytest_npubench.suites.scheduling.points import ProbePoint, ProbeVisit
from pytest_npubench.verdict import Gate, Verdict, judge_gates
from pytest_npubench.verdict.result import Judgement, Metric

if TYPE_CHECKING:
    from pytest_npubench.extensions.planning.virtual.cost_file import CostFile

LONG_CHUNKS, LONG_OUTPUT = 16, 100  # times tokens_per_iteration
SHORT_PROMPT, SHORT_OUTPUT = 16, 300
COVERAGE = 0.9
NUM_FIGURES = 3
NUM_DRAWS = 100
PROBES = "Each request ran alone, once a round; measured is the mean."


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeFigure:
    """Seconds: the mean over the rounds, and the band that the cost gave it."""

    name: str
    measured_s: float
    predicted_s: float
    low_s: float
    high_s: float

    @property
    def is_outside(self) -> bool:
        return not self.low_s <= self.measured_s <= self.high_s

    def __str__(self) -> str:
        return f"{self.name} {1e3 * self.measured_s:.4g} ms, {1e3 * self.low_s:.4g} to {1e3 * self.high_s:.4g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCostDetail(ServingDetail):
    """cost: the file; source and stack: what it was calibrated on; beyond: what a probe has more of than that, in
    words, where the band is twice as wide."""

    cost: str
    source: str
    stack: str
    beyond: tuple[str, ...]
    figures: tuple[ProbeFigure, ...]


class StepCostKind(LoadExperiment, ShownKind):
    name = "step_cost"
    note = PROBES

    def axes(self, plan: ServingPlan) -> Iterable[Axes]:
        return ((),) if plan.model in plan.serving.step_costs else ()

    def points(self, case: Case, plan: ServingPlan) -> tuple[ProbePoint, ...]:
        room = plan.serving.kv_capacity_tokens // 2
        long_prompt = min(LONG_CHUNKS * plan.serving.tokens_per_iteration, room - LONG_OUTPUT)
        return (
            ProbePoint(prompt_tokens=max(1, long_prompt), output_tokens=LONG_OUTPUT),
            ProbePoint(prompt_tokens=SHORT_PROMPT, output_tokens=SHORT_OUTPUT),
        )

    def judge(self, case: Case, plan: ServingPlan, measured: Measured) -> Judgement:
        """Raises StoreError for a cost that cannot be read, ConfigError for one of another model or type."""
        from pytest_npubench.extensions.planning.virtual.cost_file import read_cost_file

        visits = {
            point: [visit for (visit,) in measured.visits(point.name, ProbeVisit)] for point in self.points(case, plan)
        }
        path = Path(plan.serving.step_costs[plan.model])
        cost = read_cost_file(path)
        _check_alike(path, cost, plan)
        figures: list[ProbeFigure] = []
        beyond: dict[str, None] = {}
        for point, steps in visits.items():
            names = ("ttft", "tpot") if point.output_tokens == LONG_OUTPUT else ("tpot",)
            point_figures, more = _figures(plan, cost, point, names, steps)
            figures += point_figures
            beyond |= dict.fromkeys(more)
        outside = [str(one) for one in figures if one.is_outside]
        gate = Gate(metric=f"means outside the bands of {path.name}", value=len(outside), limit=0)
        verdict = judge_gates((gate,))
        ttfts_s = [visit.ttft_s for visit in next(iter(visits.values()))]
        return Judgement(
            verdict=verdict if not outside else _because(verdict, outside),
            what=f"two requests against {path.name}",
            metrics=tuple(
                Metric(name=f"{figure}_{point.prompt_tokens}_s", unit="s", value=fmean(values), samples=tuple(values))
                for point, steps in visits.items()
                for figure, values in _columns(steps).items()
            ),
            measured_s=fmean(ttfts_s),
            predicted_s=figures[0].predicted_s,
            error=figures[0].predicted_s / fmean(ttfts_s) - 1,
            repeat_error=repeat_error(ttfts_s),
            detail=StepCostDetail(
                cost=str(path), source=cost.source, stack=cost.stack, beyond=tuple(beyond), figures=tuple(figures)
            ),
        )


def _because(verdict: Verdict, outside: Sequence[str]) -> Verdict:
    return replace(verdict, reason=f"{verdict.reason}: {'; '.join(outside)}; calibrate anew, or find what changed")


def _check_alike(path: Path, cost: CostFile, plan: ServingPlan) -> None:
    theirs, ours = (cost.tensor_parallel, cost.dtype), (plan.spec.tensor_parallel, plan.serving.dtype)
    if theirs != ours:
        raise ConfigError(f"{path} is of {theirs[0]} devices in {theirs[1]}, not of {ours[0]} in {ours[1]}")


def _columns(visits: Sequence[ProbeVisit]) -> dict[str, list[float]]:
    return {"ttft": [visit.ttft_s for visit in visits], "tpot": [visit.tpot_s for visit in visits]}


def _figures(
    plan: ServingPlan, cost: CostFile, point: ProbePoint, names: Sequence[str], visits: Sequence[ProbeVisit]
) -> tuple[list[ProbeFigure], tuple[str, ...]]:
    """Those of one probe, and what it has more of than the calibrating run."""
    import numpy as np

    from pytest_npubench.extensions.planning.simulated import served_under
    from pytest_npubench.extensions.planning.virtual.calibration import MEAN_SCALE
    from pytest_npubench.stats.error import student_quantile
    from pytest_npubench.suites.scheduling.policies import probe_alone

    calibration = cost.calibration(plan.shape)
    runs = [
        served_under(plan, probe_alone(plan), [point.request], drawn, cost.router)
        for drawn in (calibration.best, *calibration.draws(NUM_DRAWS))
    ]
    beyond = cost.beyond(runs[0].log, plan.shape)
    tail = (1 - COVERAGE) / NUM_FIGURES / 2  # on either side
    unknown = MEAN_SCALE * float(student_quantile(1 - tail, np.inf))
    wider = 2.0 if beyond else 1.0
    simulated = _columns([ProbeVisit.of(run.records[0]) for run in runs])
    rows = []
    for name, values in ((name, _columns(visits)[name]) for name in names):
        best, *drawn = simulated[name]
        low, high = np.quantile(drawn, (tail, 1 - tail), method="hazen").tolist()
        rows.append(
            ProbeFigure(
                name=f"{name.upper()} after {point.prompt_tokens} prompt tokens",
                measured_s=fmean(values),
                predicted_s=best,
                low_s=best - wider * (max(0.0, best - low) + unknown * best),
                high_s=best + wider * (max(0.0, high - best) + unknown * best),
            )
        )
    return rows, beyond


KIND = StepCostKind()
